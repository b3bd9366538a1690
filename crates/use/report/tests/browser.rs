//! The report page in headless Chromium, opened from disk. Where no Chromium is installed these tests say so
//! and are left out.

use crate::common;

use crate::chromium::{attribute, opened};
use common::{HOSTILE, hostile, large, measured, page, plan};
use shopfloor_report::page::Baseline;

fn whole() -> String {
    let plan = plan();
    let m = measured(&plan);
    let other = Baseline::read(&page(&plan, None).json().unwrap()).unwrap();
    page(&plan, Some(&m)).with_against(other).html().unwrap()
}

#[test]
fn pages_open_without_errors_at_both_widths() {
    if !testing::turn("pages_open_without_errors_at_both_widths") {
        return;
    }
    let plan = plan();
    for html in [whole(), page(&plan, None).html().unwrap()] {
        for width in [1280, 400] {
            let script = "test.sections = $$('section').map((s) => s.id).join(' ');
                test.over = document.documentElement.scrollWidth - document.documentElement.clientWidth;
                test.wide = innerWidth;
                test.empty = $$('section').filter((s) => s.textContent.length < 40).length;
                test.unnamed = $$('button, input, select').filter((b) => !(b.textContent.trim() || b.getAttribute('aria-label') || b.closest('label'))).length;
                test.twice = $$('[id]').length - new Set($$('[id]').map((e) => e.id)).size;";
            let Some(dom) = opened(
                "pages_open_without_errors_at_both_widths",
                &html,
                width,
                script,
            ) else {
                return;
            };
            let of = |n: &str| attribute(&dom, n).unwrap();
            let sections = of("sections");
            for s in [
                "timeline", "roofline", "steps", "memory", "fusion", "advice", "machine", "nodes",
            ] {
                assert!(sections.contains(s), "{s}: {sections}");
            }
            assert_eq!(
                html.contains("\"against\":{"),
                sections.starts_with("against")
            );
            assert_eq!((of("wide"), of("over")), (width.to_string(), "0".into()));
            assert_eq!(
                (of("empty"), of("unnamed"), of("twice")),
                ("0".into(), "0".into(), "0".into())
            );
        }
    }
}

#[test]
fn tables_sort_and_filter() {
    if !testing::turn("tables_sort_and_filter") {
        return;
    }
    let script = "const th = (n) => $$('#steps th').find((t) => t.textContent === n), first = () => $$('#steps tbody tr').map((t) => t.dataset.s).join(' ');
        test.byTime = first(); test.timeSort = th('time').getAttribute('aria-sort');
        th('step').querySelector('button').click();
        test.byNumber = first(); test.numberSort = th('step').getAttribute('aria-sort'); test.timeThen = th('time').getAttribute('aria-sort');
        th('step').querySelector('button').click();
        test.back = first();
        const f = $('#filter'); f.value = 'conv'; f.dispatchEvent(new Event('input'));
        test.convs = $$('#steps tbody tr').length; test.said = $('#steps [role=status]').textContent;";
    let Some(dom) = opened("tables_sort_and_filter", &whole(), 1280, script) else {
        return;
    };
    let of = |n: &str| attribute(&dom, n).unwrap();
    let numbers =
        |n: &str| -> Vec<usize> { of(n).split(' ').map(|t| t.parse().unwrap()).collect() };
    let p = plan();
    let data = page(&p, Some(&measured(&p)));
    let mut by_time: Vec<usize> = (0..data.steps.len()).collect();
    by_time.sort_by(|a, b| {
        data.step_us(&data.steps[*b])
            .total_cmp(&data.step_us(&data.steps[*a]))
            .then(a.cmp(b))
    });
    assert_eq!(numbers("by-time"), by_time);
    assert_eq!(
        (of("time-sort"), of("number-sort"), of("time-then")),
        ("descending".into(), "ascending".into(), "none".into())
    );
    let mut up = numbers("by-number");
    assert!(up.is_sorted());
    up.reverse();
    assert_eq!(numbers("back"), up);
    let convs: usize = of("convs").parse().unwrap();
    assert!(convs > 0 && convs < data.steps.len());
    assert!(of("said").starts_with(&format!("{convs} of {} steps", data.steps.len())));
}

#[test]
fn everything_works_by_keyboard() {
    if !testing::turn("report: everything_works_by_keyboard") {
        return;
    }
    let script = "const row = $('#steps tbody tr'); row.focus(); key(row, 'ArrowDown');
        test.moved = document.activeElement === $$('#steps tbody tr')[1];
        key(document.activeElement, 'Enter');
        test.open = !$('#drawer').hidden; test.title = $('#drawer-title').textContent; test.formulas = $$('#drawer .formula').length; test.sources = $$('#drawer .src').length;
        key($('#drawer'), 'Escape');
        test.closed = $('#drawer').hidden; test.returned = document.activeElement === $$('#steps tbody tr')[1];
        for (const view of ['timeline', 'roofline', 'predicted']) { const g = $('#' + view + ' svg[tabindex]'); g.focus(); key(g, 'ArrowRight'); test[view] = $('#' + view + ' .hint').textContent; key(g, 'Enter'); test[view + 'Open'] = !$('#drawer').hidden; key(g, 'Escape'); }
        const t = $('#timeline svg'); const before = t.innerHTML; key(t, '+'); test.zoomed = t.innerHTML !== before; key(t, '0'); test.unzoomed = true;
        const n = $('#figures button.n'); n.click(); test.figure = $('#drawer-body').textContent; key(n, 'Escape');
        test.order = $$('a, button, input, select, [tabindex]').every((e) => e.tabIndex <= 0);";
    let Some(dom) = opened("everything_works_by_keyboard", &whole(), 1280, script) else {
        return;
    };
    let of = |n: &str| attribute(&dom, n).unwrap_or_else(|| panic!("{n}"));
    for n in [
        "moved",
        "open",
        "closed",
        "returned",
        "timeline-open",
        "roofline-open",
        "predicted-open",
        "zoomed",
        "order",
    ] {
        assert_eq!(of(n), "true", "{n}");
    }
    assert!(of("title").starts_with("Step "), "{}", of("title"));
    let many = |n: &str| of(n).parse::<usize>().unwrap();
    assert!(many("formulas") >= 8 && many("sources") >= 8);
    for n in ["timeline", "roofline", "predicted"] {
        assert!(of(n).contains("step "), "{n}: {}", of(n));
    }
    assert!(
        of("figure").contains("median over requests"),
        "{}",
        of("figure")
    );
}

#[test]
fn a_model_injects_nothing() {
    if !testing::turn("report: a_model_injects_nothing") {
        return;
    }
    let plan = hostile();
    let m = measured(&plan);
    let html = page(&plan, Some(&m)).html().unwrap();
    let script = "for (const tr of $$('#steps tbody tr')) tr.click();
        $('#nodes details').open = true; await new Promise((r) => setTimeout(r, 50));
        for (const b of $$('section button.n')) b.click();
        await new Promise((r) => setTimeout(r, 200));
        test.pwned = String(window.pwned); test.images = $$('img').length; test.scripts = $$('script').length;
        test.name = $('#model').textContent.includes('window.pwned=1');";
    let Some(dom) = opened("a_model_injects_nothing", &html, 1280, script) else {
        return;
    };
    let of = |n: &str| attribute(&dom, n).unwrap();
    assert_eq!(
        (of("pwned"), of("images"), of("name")),
        ("undefined".into(), "0".into(), "true".into())
    );
    // Data, code, and the test's own.
    assert_eq!(of("scripts"), "3");
    assert!(HOSTILE.contains("onerror"));
}

#[test]
fn nothing_moves_when_something_is_chosen() {
    if !testing::turn("nothing_moves_when_something_is_chosen") {
        return;
    }
    let script = "const at = () => $$('section, section h2, #steps table').map((s) => Math.round(s.getBoundingClientRect().top + scrollY)).join(' ');
        await new Promise((r) => setTimeout(r, 100)); const before = at();
        for (const view of ['timeline', 'roofline', 'predicted']) { const g = $('#' + view + ' svg[tabindex]'); key(g, 'ArrowRight'); key(g, 'ArrowRight'); }
        $('#roofline input').click(); $('#steps tbody tr').click();
        await new Promise((r) => setTimeout(r, 100)); test.same = before === at(); test.before = before; test.after = at();";
    for width in [1280, 400] {
        let Some(dom) = opened(
            "nothing_moves_when_something_is_chosen",
            &whole(),
            width,
            script,
        ) else {
            return;
        };
        let of = |n: &str| attribute(&dom, n).unwrap();
        assert_eq!(
            of("same"),
            "true",
            "{width}: {} {}",
            of("before"),
            of("after")
        );
    }
}

#[test]
fn a_thousand_steps_open() {
    if !testing::turn("a_thousand_steps_open") {
        return;
    }
    let plan = large(1000);
    let m = measured(&plan);
    let html = page(&plan, Some(&m)).html().unwrap();
    let script = "test.rows = $$('#steps tbody tr').length; const th = $$('#steps th button')[3]; th.click(); th.click();";
    let Some(dom) = opened("a_thousand_steps_open", &html, 1280, script) else {
        return;
    };
    assert_eq!(attribute(&dom, "rows").unwrap(), "1000");
    println!("1,000 steps: {} ms", attribute(&dom, "ready").unwrap());
}
