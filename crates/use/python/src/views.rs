//! Plans and profiles as text, JSON and pages.
use crate::errors;
use pyo3::prelude::*;
use shopfloor::{Session, Tensor, inputs};
use shopfloor_tools::report::{PlanView, Style, chrome_trace};
use shopfloor_tools::targets::Kernels;
use shopfloor_tools::{pages, planview};
use std::collections::BTreeMap;

/// Steps that the table of a profile lists.
const TOP: usize = 15;

fn json(value: &impl serde::Serialize) -> PyResult<String> {
    serde_json::to_string(value).map_err(|e| errors::Error::new_err(e.to_string()))
}

fn planned(
    session: &Session,
    device: &str,
    asked: &BTreeMap<String, i64>,
) -> PyResult<(shopfloor::Plan, PlanView)> {
    planview::of_sizes(session, device, asked).map_err(errors::of)
}

/// The plan for sizes by dimension: text, text with the reasons, JSON.
pub fn plan(
    session: &Session,
    device: &str,
    asked: &BTreeMap<String, i64>,
) -> PyResult<(String, String, String)> {
    let (_, view) = planned(session, device, asked)?;
    let style = Style::default();
    Ok((
        view.render(style, false),
        view.render(style, true),
        json(&view)?,
    ))
}

/// The page of that plan.
pub fn page(session: &Session, device: &str, asked: &BTreeMap<String, i64>) -> PyResult<String> {
    let (plan, view) = planned(session, device, asked)?;
    let machine = session.runtime().engine().device().machine().clone();
    let page = pages::of_plan(session.model(), &plan, &view, &machine, Kernels::Ours);
    page.html()
        .map_err(|e| errors::Error::new_err(e.to_string()))
}

/// A profile of `active` requests after `warmup` others: text, JSON, Chrome trace of the last, page.
pub fn profile(
    session: &Session,
    given: Option<Vec<(String, Tensor)>>,
    warmup: usize,
    active: usize,
) -> PyResult<(String, String, String, String)> {
    let named = match given {
        Some(named) => named,
        None => {
            let (sizes, _) = inputs::sizes(session.model());
            inputs::random_inputs(session.model(), &sizes).map_err(errors::of)?
        }
    };
    let (profile, timeline) =
        shopfloor::profile(session, &named, warmup, active).map_err(errors::of)?;
    let page = pages::of_profile(session, &named, &profile, &timeline).map_err(errors::of)?;
    let page = page.html();
    Ok((
        profile.render(Style::default(), TOP, false),
        json(&profile)?,
        chrome_trace(&profile, &timeline),
        page.map_err(|e| errors::Error::new_err(e.to_string()))?,
    ))
}
