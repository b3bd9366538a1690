//! Golden texts: a graph, the pass, the graph afterwards and what was said. A file's first line
//! names the pass (`all` for the whole table); `=>` stands between before and after. With
//! `SHOPFLOOR_BLESS=1` the part after `=>` is written anew.
use graph::Graph;
use shopfloor_rewrite::{Change, Fuel, Options, PASSES, run};
use std::fmt::Write;
use std::path::Path;

fn apply(pass: &str, g: &Graph) -> (Graph, Vec<Change>) {
    if pass == "all" {
        return run(g, &Options::default()).unwrap();
    }
    let p = PASSES.iter().find(|p| p.name == pass).unwrap();
    let r = (p.run)(g.clone(), &mut Fuel::new(None)).unwrap();
    r.graph.verify().unwrap();
    (r.graph, r.changes)
}

#[test]
fn golden() {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden");
    let mut files: Vec<_> = std::fs::read_dir(&dir)
        .unwrap()
        .map(|f| f.unwrap().path())
        .collect();
    files.sort();
    let bless = std::env::var("SHOPFLOOR_BLESS").is_ok();
    let mut passes = Vec::new();
    for f in files {
        let text = std::fs::read_to_string(&f).unwrap();
        let (head, want) = text.split_once("=>\n").unwrap_or((&text, ""));
        let (pass, before) = head.split_once('\n').unwrap();
        passes.push(pass.to_string());
        let g = Graph::parse(before).unwrap_or_else(|e| panic!("{}: {e}", f.display()));
        g.verify()
            .unwrap_or_else(|e| panic!("{}: {e}", f.display()));
        let (after, changes) = apply(pass, &g);
        let mut got = after.to_text();
        for c in &changes {
            let sign = if c.done { "did" } else { "not" };
            writeln!(got, "# {sign} {} {}: {}", c.pass, c.subject, c.why).unwrap();
        }
        if bless {
            std::fs::write(&f, format!("{pass}\n{before}=>\n{got}")).unwrap();
            continue;
        }
        assert_eq!(got, want, "{}", f.display());
        // Nothing is left to do, and the form reads back.
        assert_eq!(
            Graph::parse(&after.to_text()).unwrap().to_text(),
            after.to_text()
        );
        let again = apply(pass, &after).1;
        assert!(!again.iter().any(|c| c.done), "{}: {again:?}", f.display());
    }
    for p in PASSES {
        assert!(
            passes.iter().any(|x| x == p.name),
            "no golden text of {}",
            p.name
        );
    }
}
