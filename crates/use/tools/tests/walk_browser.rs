//! The walk's page in headless Chromium, opened from disk. Where no Chromium is installed these tests say so
//! and are left out.

#[path = "../../report/tests/common/browser.rs"]
mod browser;

use browser::{attribute, opened, opened_with};
use shopfloor::ModelOptions;
use shopfloor_tools::report::walk::Walk;
use shopfloor_tools::walk::{WalkOptions, tour, walk};
use std::sync::OnceLock;

const MODEL: &str = concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/../../../models/two_layers/model.onnx"
);

fn quick(on: &str) -> WalkOptions {
    WalkOptions {
        on: on.into(),
        quick: true,
        ..WalkOptions::default()
    }
}

fn gpu() -> &'static Walk {
    static WALK: OnceLock<Walk> = OnceLock::new();
    WALK.get_or_init(|| tour(&quick("a100")).unwrap())
}

fn cpu() -> Walk {
    let mut options = ModelOptions::default();
    options.dims.insert("rows", 64, 64);
    walk(MODEL, &options, &quick("cpu")).unwrap()
}

#[test]
fn every_scene_opens_without_errors_at_both_widths() {
    if !testing::turn("every_scene_opens_without_errors_at_both_widths") {
        return;
    }
    let script = "const bad = []; const size = () => { const r = $('#controls').getBoundingClientRect(); return Math.round(r.top + scrollY) + ' ' + document.documentElement.scrollWidth; };
        test.wide = innerWidth; const first = size(); const seen = [];
        for (const a of $$('nav a')) { a.click(); await new Promise((r) => setTimeout(r, 30)); seen.push(test.scene);
          if (size() !== first) bad.push(test.scene + ' moved: ' + size() + ' was ' + first);
          if (!$('#caption').textContent.trim()) bad.push(test.scene + ' says nothing');
          if (/[{}]/.test($('#caption').textContent)) bad.push(test.scene + ': ' + $('#caption').textContent);
          if (!$('#picture').firstChild || $('#picture').textContent.trim().length < 10) bad.push(test.scene + ' draws nothing');
          if (location.hash.slice(1) !== test.scene) bad.push(test.scene + ' is not in the address'); }
        test.bad = bad.join('; '); test.seen = seen.join(' ');
        test.over = document.documentElement.scrollWidth - document.documentElement.clientWidth;
        test.unnamed = $$('button, input, select, svg[role=img]').filter((b) => !(b.textContent.trim() || b.getAttribute('aria-label') || b.closest('label'))).length;
        test.twice = $$('[id]').length - new Set($$('[id]').map((e) => e.id)).size;
        test.clash = $$('nav a').filter((a) => document.getElementById(a.hash.slice(1))).length;";
    for w in [gpu(), &cpu()] {
        let ids: Vec<&str> = w.scenes.iter().map(|s| s.id).collect();
        for width in [1280, 400] {
            let test = "every_scene_opens_without_errors_at_both_widths";
            let Some(dom) = opened(test, &w.html().unwrap(), width, script) else {
                return;
            };
            let of = |n: &str| attribute(&dom, n).unwrap();
            assert_eq!(of("bad"), "", "{} {width}", w.machine);
            assert_eq!(of("seen"), ids.join(" "));
            for n in ["over", "unnamed", "twice", "clash"] {
                assert_eq!(of(n), "0", "{n} {} {width}", w.machine);
            }
            assert_eq!(of("wide"), width.to_string());
        }
    }
}

#[test]
fn it_plays_to_its_end() {
    if !testing::turn("it_plays_to_its_end") {
        return;
    }
    let beats = gpu().scenes.iter().map(|s| s.beats.len()).sum::<usize>();
    let script = "$('#speed').value = '8'; $('#speed').dispatchEvent(new Event('change')); $('#play').click();
        test.word = $('#play').textContent.trim(); const heard = new Set([test.beat]);
        while (!test.ended) { await new Promise((r) => setTimeout(r, 100)); heard.add(test.beat); }
        test.heard = heard.size; test.after = $('#play').textContent.trim(); test.at = $('#scrub').value;
        $('#play').click(); await new Promise((r) => setTimeout(r, 50)); test.again = test.beat; $('#play').click();";
    // The browser's virtual time draws no frames of its own: they come from its clock.
    let frames = "<body><script nonce=\"shopfloor\">window.requestAnimationFrame = (f) => setTimeout(() => f(performance.now()), 16);</script>";
    let html = gpu().html().unwrap().replacen("<body>", frames, 1);
    let Some(dom) = opened_with("it_plays_to_its_end", &html, 1280, script, 120_000, &[]) else {
        return;
    };
    let of = |n: &str| attribute(&dom, n).unwrap();
    assert_eq!(
        (of("word").as_str(), of("after").as_str()),
        ("Pause", "Play")
    );
    assert_eq!(of("heard"), beats.to_string(), "every caption is shown");
    assert_eq!((of("at"), of("again").as_str()), (of("total"), "0"));
}

#[test]
fn everything_works_by_keyboard() {
    if !testing::turn("walk: everything_works_by_keyboard") {
        return;
    }
    let script = "const press = (k) => key(document.body, k); const out = []; const at = () => out.push(test.scene + ':' + test.beat);
        press('Home'); at(); press('ArrowRight'); at(); press('ArrowLeft'); at(); press('PageDown'); at(); press('PageUp'); at(); press('End'); at();
        press('+'); press('+'); out.push($('#speed').value); press('-'); out.push($('#speed').value);
        press('a'); out.push(String(!$('#analogy').hidden)); press('a'); out.push(String(!$('#analogy').hidden));
        press('Home'); press(' '); out.push($('#play').textContent.trim()); press(' '); out.push($('#play').textContent.trim());
        const n = $('#caption button.n'); n.focus(); n.click(); out.push(String(!$('#drawer').hidden), String(document.activeElement.id));
        test.drawer = $('#drawer').textContent; press('Escape'); out.push(String($('#drawer').hidden), String(document.activeElement === n));
        test.out = out.join(' ');";
    let Some(dom) = opened(
        "everything_works_by_keyboard",
        &gpu().html().unwrap(),
        1280,
        script,
    ) else {
        return;
    };
    let first = gpu().scenes[0].beats.len();
    let last = gpu().scenes.iter().map(|s| s.beats.len()).sum::<usize>() - 1;
    let expected = format!(
        "node:0 node:1 node:0 choice:{first} node:0 bill:{last} 4 2 true false Pause Play true drawer true true"
    );
    assert_eq!(attribute(&dom, "out").unwrap(), expected);
    assert!(attribute(&dom, "drawer").unwrap().contains("Source"));
}

#[test]
fn scenes_are_linked_to() {
    if !testing::turn("scenes_are_linked_to") {
        return;
    }
    for s in &gpu().scenes {
        if !["grid", "lanes", "bill"].contains(&s.id) {
            continue;
        }
        // The page opens where its address says; a script cannot open it anew, so the address is put in
        // before the page's own script runs.
        let html = gpu().html().unwrap().replacen(
            "<body>",
            &format!(
                "<body><script nonce=\"shopfloor\">location.hash = '{}';</script>",
                s.id
            ),
            1,
        );
        let script = "test.first = test.scene; location.hash = '#tiles'; await new Promise((r) => setTimeout(r, 100)); test.second = test.scene;";
        let Some(dom) = opened("scenes_are_linked_to", &html, 1280, script) else {
            return;
        };
        assert_eq!(attribute(&dom, "first").as_deref(), Some(s.id));
        assert_eq!(attribute(&dom, "second").as_deref(), Some("tiles"));
    }
}

#[test]
fn pictures_show_what_was_counted() {
    if !testing::turn("pictures_show_what_was_counted") {
        return;
    }
    let w = gpu();
    let waves = &w.scene("grid").unwrap();
    let of = |k: &str| waves.figure(k).unwrap().value.unwrap() as u64;
    let script = "const go = (id, lit) => { $('nav a[href=\"#' + id + '\"]').click(); };
        const path = (p) => ($(p).getAttribute('d').match(/M/g) || []).length;
        go('grid'); key(document.body, 'ArrowRight'); test.wave = path('#picture path.now'); test.slots = path('#picture path.full:nth-of-type(5)');
        key(document.body, 'ArrowRight'); key(document.body, 'ArrowRight'); test.lastwave = path('#picture path.now'); test.status = $('#picture svg').textContent;
        go('lanes'); key(document.body, 'ArrowRight'); test.sectors = $$('#picture rect.full').length; test.lines = $$('#picture line').length; test.said = $('#picture svg').textContent;";
    let Some(dom) = opened(
        "pictures_show_what_was_counted",
        &w.html().unwrap(),
        1280,
        script,
    ) else {
        return;
    };
    let got = |n: &str| attribute(&dom, n).unwrap();
    assert_eq!(got("wave"), of("slots").to_string());
    assert_eq!(got("lastwave"), of("last").to_string());
    assert!(got("status").contains(&format!("wave {0} of {0}", of("waves"))));
    let lanes = w.scene("lanes").unwrap();
    let lane = |k: &str| lanes.figure(k).unwrap().value.unwrap() as u64;
    assert_eq!(got("sectors"), lane("load_moved").to_string());
    assert_eq!(got("lines"), lane("load_lanes").to_string());
    let moved = match lane("load_moved") {
        1 => "1 sector moved".to_string(),
        n => format!("{n} sectors moved"),
    };
    assert!(got("said").contains(&moved), "{}", got("said"));
}

#[test]
fn a_cpus_lanes_are_drawn_onto_their_lines() {
    if !testing::turn("a_cpus_lanes_are_drawn_onto_their_lines") {
        return;
    }
    let w = cpu();
    let lanes = w.scene("lanes").unwrap();
    let script = "$('nav a[href=\"#lanes\"]').click(); key(document.body, 'ArrowRight');
        test.touched = $$('#picture rect.full').length; test.lines = $$('#picture line').length; test.said = $('#picture svg').textContent;";
    for width in [1280, 400] {
        let test = "a_cpus_lanes_are_drawn_onto_their_lines";
        let Some(dom) = opened(test, &w.html().unwrap(), width, script) else {
            return;
        };
        let got = |n: &str| attribute(&dom, n).unwrap();
        let of = |k: &str| lanes.figure(k).unwrap().value.unwrap() as u64;
        assert_eq!(got("touched"), of("moved1").to_string(), "{width}");
        assert_eq!(got("lines"), of("lanes1").to_string(), "{width}");
        assert!(got("said").contains("cache line"), "{}", got("said"));
        assert!(got("said").contains("would do"), "{}", got("said"));
    }
}

#[test]
fn reduced_motion_is_honoured() {
    if !testing::turn("reduced_motion_is_honoured") {
        return;
    }
    let script = "const shape = () => $('#picture').innerHTML; $('nav a[href=\"#grid\"]').click(); key(document.body, 'ArrowRight');
        const end = shape(); const s = $('#scrub'); s.value = Number(s.value) - 1500; s.dispatchEvent(new Event('input')); test.same = end === shape();";
    let html = gpu().html().unwrap();
    for (args, same) in [
        (&["--force-prefers-reduced-motion"][..], "true"),
        (&[], "false"),
    ] {
        let test = "reduced_motion_is_honoured";
        let Some(dom) = opened_with(test, &html, 1280, script, 5000, args) else {
            return;
        };
        assert_eq!(attribute(&dom, "same").as_deref(), Some(same), "{args:?}");
    }
}

#[test]
fn a_model_injects_nothing() {
    if !testing::turn("walk: a_model_injects_nothing") {
        return;
    }
    // A model whose nodes and tensors are named to get at the page; names keep their lengths, so that the
    // file stays whole.
    let mut bytes = std::fs::read(MODEL).unwrap();
    for (from, to) in [
        ("/layer1/MatMul", "</script><b>%D"),
        ("/layer1/Add", "<!--<script"),
        ("/layer1/Relu", "{node}<img>\u{1}"),
        ("layer1.weight", "\"'><svg/on=1>"),
    ] {
        assert_eq!(from.len(), to.len(), "{to}");
        let all: Vec<usize> = (0..bytes.len() - from.len())
            .filter(|i| bytes[*i..].starts_with(from.as_bytes()))
            .collect();
        for at in all {
            bytes[at..at + to.len()].copy_from_slice(to.as_bytes());
        }
    }
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("%DATA%.onnx");
    std::fs::write(&path, bytes).unwrap();
    let mut options = ModelOptions::default();
    options.dims.insert("rows", 512, 512);
    let step = WalkOptions {
        step: Some("1".into()),
        ..quick("h100")
    };
    let w = walk(&path, &options, &step).unwrap();
    let html = w.html().unwrap();
    assert_eq!(html.matches("<script").count(), 2);
    assert_eq!(html.matches("</script>").count(), 2);
    assert_eq!(html.matches("<!--").count(), 0);
    assert_eq!(html.matches("<img").count(), 0);
    assert!(
        w.step.nodes[0].starts_with("</script>"),
        "{:?}",
        w.step.nodes
    );
    let script = "for (const a of $$('nav a')) { a.click(); for (let i = 0; i < 3; i++) key(document.body, 'ArrowRight'); }
        $('nav a').click(); test.caption = $('#caption').textContent; test.bold = $$('b').filter((b) => b.textContent === '%D').length; test.img = $$('img').length; test.scripts = $$('script').length;";
    let Some(dom) = opened("a_model_injects_nothing", &html, 1280, script) else {
        return;
    };
    let of = |n: &str| attribute(&dom, n).unwrap();
    // The page's own two, and the test's.
    assert_eq!(
        (
            of("img").as_str(),
            of("bold").as_str(),
            of("scripts").as_str()
        ),
        ("0", "0", "3")
    );
    assert!(
        of("caption").contains("&lt;/script&gt;") || of("caption").contains("</script>"),
        "{}",
        of("caption")
    );
}
