//! Pages in headless Chromium, opened from disk. Where no Chromium is installed a test says so and is left out.
#![allow(dead_code)]

use std::path::PathBuf;
use std::process::Command;

fn chromium() -> Option<PathBuf> {
    let own = std::env::var_os("CHROMIUM").map(PathBuf::from);
    let path = std::env::var_os("PATH").unwrap_or_default();
    let names = ["chromium", "chromium-browser", "google-chrome"];
    let on_path = std::env::split_paths(&path).flat_map(|d| names.map(|n| d.join(n)));
    own.into_iter().chain(on_path).find(|p| p.is_file())
}

/// The document after `script` ran in `html`; `None` where there is no browser. The window is `width`
/// pixels wide.
pub fn opened(test: &str, html: &str, width: u32, script: &str) -> Option<String> {
    opened_with(test, html, width, script, 5000, &[])
}

/// As [`opened`], for at most `budget` milliseconds of the browser's virtual time, with further arguments.
pub fn opened_with(
    test: &str,
    html: &str,
    width: u32,
    script: &str,
    budget: u32,
    args: &[&str],
) -> Option<String> {
    let Some(chromium) = chromium() else {
        testing::skip(
            &format!("browser: {test}"),
            "there is no Chromium; install it or set CHROMIUM",
        );
        return None;
    };
    let dir = tempfile::tempdir().unwrap();
    let whole = format!(
        "<script nonce=\"shopfloor\">(async () => {{ const test = document.documentElement.dataset; const $ = (q) => document.querySelector(q); const $$ = (q) => [...document.querySelectorAll(q)]; const key = (e, key) => e.dispatchEvent(new KeyboardEvent('keydown', {{ key, bubbles: true, cancelable: true }})); try {{ {script} }} catch (e) {{ test.failed = String(e.stack || e); }} test.done = 'yes'; }})();</script></body>"
    );
    let html = html.replacen("</body>", &whole, 1);
    let file = dir.path().join("page.html");
    // Windows are at least 500 pixels wide: a narrower page stands in a frame.
    let open = match width < 500 {
        true => {
            std::fs::write(dir.path().join("inner.html"), html).unwrap();
            let frame = format!(
                "<!doctype html><body><iframe id=f src=inner.html style=\"width:{width}px;height:900px;border:0\"></iframe><script>f.onload = () => setTimeout(() => {{ for (const [k, v] of Object.entries(f.contentDocument.documentElement.dataset)) document.documentElement.dataset[k] = v; }}, 500);</script>"
            );
            std::fs::write(&file, frame).unwrap();
            file
        }
        false => {
            std::fs::write(&file, html).unwrap();
            file
        }
    };
    let out = Command::new(chromium)
        .args([
            "--headless=new",
            "--no-sandbox",
            "--disable-gpu",
            "--hide-scrollbars",
        ])
        .args(["--allow-file-access-from-files", "--dump-dom"])
        .arg(format!("--virtual-time-budget={budget}"))
        .args(args)
        .arg(format!(
            "--user-data-dir={}",
            dir.path().join("profile").display()
        ))
        .arg(format!("--window-size={},900", width.max(500)))
        .arg(format!("file://{}", open.display()))
        .output()
        .unwrap();
    let dom = String::from_utf8_lossy(&out.stdout).into_owned();
    let head: String = dom.chars().take(3000).collect();
    assert!(
        dom.contains("data-done=\"yes\""),
        "{test}: the script did not end: {head}"
    );
    assert_eq!(attribute(&dom, "failed"), None, "{test}");
    assert_eq!(attribute(&dom, "errors"), None, "{test}");
    assert!(attribute(&dom, "ready").is_some(), "{test}");
    Some(dom)
}

/// What a script left in `dataset.NAME`.
pub fn attribute(dom: &str, name: &str) -> Option<String> {
    let head = &dom[..dom.find("<head").unwrap_or(dom.len())];
    let at = head.find(&format!("data-{name}=\""))? + name.len() + 7;
    Some(head[at..].split('"').next()?.to_string())
}
