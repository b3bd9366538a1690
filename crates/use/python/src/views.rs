//! Plans and profiles as text, JSON and pages.
use crate::errors;
use pyo3::prelude::*;
use shopfloor::{DimBox, Session, Tensor, inputs};
use shopfloor_tools::report::{PlanView, Style, chrome_trace};
use shopfloor_tools::targets::Kernels;
use shopfloor_tools::{pages, planview};
use std::collections::BTreeMap;

/// Steps that the table of a profile lists.
const TOP: usize = 15;

fn json(value: &impl serde::Serialize) -> PyResult<String> {
    serde_json::to_string(value).map_err(|e| errors::Error::new_err(e.to_string()))
}

/// The sizes asked for, beside those that are taken where nobody gives one.
fn sizes(session: &Session, asked: &BTreeMap<String, i64>) -> PyResult<BTreeMap<String, i64>> {
    let (mut sizes, _) = inputs::sizes(session.model());
    for (name, &n) in asked {
        match sizes.get_mut(name) {
            Some(size) => *size = n,
            None => {
                let all: Vec<&str> = sizes.keys().map(String::as_str).collect();
                let has = match all.is_empty() {
                    true => "all sizes of the model are numbers".into(),
                    false => format!("its dimensions are {}", all.join(", ")),
                };
                return Err(errors::UsageError::new_err(format!(
                    "the model has no dimension '{name}' to give a size; {has}"
                )));
            }
        }
    }
    Ok(sizes)
}

fn planned(
    session: &Session,
    device: &str,
    asked: &BTreeMap<String, i64>,
) -> PyResult<(shopfloor::Plan, PlanView)> {
    let mut dims = DimBox::new();
    for (name, n) in sizes(session, asked)? {
        match (session.model().dims().get(&name), asked.get(&name)) {
            (Some(r), None) => dims.insert(name.as_str(), r.lo, r.hi),
            _ => dims.insert(name.as_str(), n, n),
        }
    }
    let plan = session.plan(&dims).map_err(errors::of)?;
    let mut view = planview::view(session, &plan);
    view.device = Some(device.into());
    Ok((plan, view))
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
