//! The walls between crates: what each may depend on, and what it must never reach.

use crate::members;
use crate::tables::{parse, table};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// How far a crate's permission goes.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Reach {
    /// The crates named and whatever those may use.
    Through,
    /// The crates named and no other.
    Exactly,
    /// Any crate but those for tests.
    Product,
    /// Any crate.
    All,
}

/// What each crate may depend on in the workspace; a crate that is not here has no place yet.
const DEPENDS: &[(&str, Reach, &[&str])] = &[
    ("testing", Reach::Exactly, &[]),
    ("files", Reach::Exactly, &[]),
    ("layout", Reach::Exactly, &[]),
    ("tensor", Reach::Exactly, &["layout"]),
    ("expr", Reach::Exactly, &["layout"]),
    ("machine", Reach::Exactly, &["files", "layout", "expr"]),
    ("graph", Reach::Through, &["layout", "expr", "tensor"]),
    ("onnx", Reach::Through, &["files", "graph"]),
    ("rewrite", Reach::Through, &["graph"]),
    (
        "kernel",
        Reach::Through,
        &["layout", "expr", "machine", "tensor"],
    ),
    ("plan", Reach::Through, &["kernel", "machine"]),
    ("planner", Reach::Through, &["rewrite", "plan"]),
    ("emit", Reach::Through, &["kernel", "plan"]),
    ("workers", Reach::Exactly, &[]),
    ("device", Reach::Through, &["plan", "workers"]),
    ("hostops", Reach::Through, &["graph"]),
    ("microkernels", Reach::Exactly, &[]),
    (
        "cpu",
        Reach::Through,
        &["device", "emit", "hostops", "microkernels"],
    ),
    ("cuda", Reach::Through, &["device", "emit", "hostops"]),
    ("webgpu", Reach::Through, &["device", "emit", "hostops"]),
    ("ptx-emulator", Reach::Exactly, &[]),
    ("cuda-emulated", Reach::Through, &["cuda", "ptx-emulator"]),
    ("reference", Reach::Through, &["graph", "kernel", "hostops"]),
    ("supervisor", Reach::Through, &["plan"]),
    ("sim", Reach::Through, &["supervisor", "report"]),
    ("runtime", Reach::Through, &["device", "supervisor"]),
    ("data", Reach::Through, &["onnx"]),
    ("report", Reach::Through, &["plan"]),
    ("predict", Reach::Through, &["planner"]),
    (
        "shopfloor",
        Reach::Through,
        &[
            "onnx",
            "planner",
            "cpu",
            "cuda-emulated",
            "webgpu",
            "runtime",
            "report",
        ],
    ),
    ("tools", Reach::Product, &[]),
    ("python", Reach::Exactly, &["shopfloor", "tools"]),
    ("capi", Reach::Exactly, &["shopfloor", "tools"]),
    ("onnxruntime-plugin", Reach::Exactly, &["shopfloor", "onnx"]),
    (
        "shopfloor-cli",
        Reach::Exactly,
        &["shopfloor", "tools", "ptx-emulator"],
    ),
    ("testkit", Reach::All, &[]),
    ("campaigns", Reach::All, &[]),
    ("conformance", Reach::All, &[]),
    ("gpu-check", Reach::All, &[]),
    ("xtask", Reach::All, &[]),
];

/// The groups of crates, in the order of a model's way: a crate uses those of its own group and of the
/// groups before it.
pub const GROUPS: &[&str] = &["model", "plan", "target", "run", "use", "check"];

/// Crates that no product code may use.
const FOR_TESTS: &[&str] = &[
    "testing",
    "testkit",
    "campaigns",
    "conformance",
    "gpu-check",
    "xtask",
    "reference",
];

/// What a crate must not reach, even through others. Most of this follows from [`DEPENDS`]; it is
/// said again so that widening that table cannot break a wall unnoticed.
const NEVER: &[(&str, &[&str])] = &[
    (
        "runtime",
        &[
            "planner", "rewrite", "graph", "onnx", "cpu", "cuda", "webgpu",
        ],
    ),
    ("device", &["planner", "rewrite", "graph", "onnx"]),
    (
        "supervisor",
        &["device", "runtime", "planner", "graph", "cpu", "sim"],
    ),
    ("sim", &["planner", "graph", "cpu", "device", "runtime"]),
    ("rewrite", &["machine", "kernel", "plan", "device"]),
    (
        "planner",
        &["device", "runtime", "cpu", "cuda", "webgpu", "emit", "onnx"],
    ),
    ("emit", &["device", "graph", "runtime"]),
    ("kernel", &["graph", "device"]),
    ("plan", &["graph", "device", "planner"]),
    ("machine", &["graph", "kernel", "device"]),
    ("graph", &["onnx", "machine", "kernel", "device"]),
    (
        "onnx",
        &["machine", "kernel", "plan", "planner", "device", "runtime"],
    ),
    ("hostops", &["device", "cpu", "planner"]),
    ("cpu", &["planner", "rewrite", "onnx", "runtime"]),
    ("cuda", &["planner", "rewrite", "onnx", "runtime"]),
    ("webgpu", &["planner", "rewrite", "onnx", "runtime"]),
    ("reference", &["planner", "device", "cpu", "runtime"]),
    ("report", &["planner", "graph", "device", "runtime"]),
    ("expr", &["tensor", "graph", "machine"]),
    ("layout", &["tensor", "expr", "graph"]),
];

/// Direct dependencies of each crate on crates of the workspace, those for tests left out.
pub type Edges = BTreeMap<String, BTreeSet<String>>;

/// Findings about the crate graph of the repository at `root`.
pub fn crate_graph(root: &Path) -> Vec<String> {
    match read(root) {
        Ok((edges, mut findings)) => {
            findings.extend(judge(&edges));
            findings.extend(groups(&members(root), &edges));
            findings
        }
        Err(e) => vec![e],
    }
}

/// Findings: a crate stands in no group, or uses one of a later group.
fn groups(members: &[crate::Member], edges: &Edges) -> Vec<String> {
    let mut findings = Vec::new();
    let mut of = BTreeMap::new();
    for m in members {
        let group = m.folder.split('/').nth(1).unwrap_or_default();
        match GROUPS.iter().position(|g| *g == group) {
            Some(at) if m.folder == format!("crates/{group}/{}", m.name) => {
                of.insert(m.name.as_str(), at);
            }
            _ => findings.push(format!(
                "the crate in {} must stand in a folder of a group: crates/{{{}}}/NAME",
                m.folder,
                GROUPS.join(",")
            )),
        }
    }
    for (from, to) in edges
        .iter()
        .flat_map(|(f, direct)| direct.iter().map(move |t| (f, t)))
    {
        if let (Some(a), Some(b)) = (of.get(from.as_str()), of.get(to.as_str()))
            && a < b
        {
            findings.push(format!(
                "crate {from} of group {} must not use {to} of the later group {}",
                GROUPS[*a], GROUPS[*b]
            ));
        }
    }
    findings
}

/// Findings about `edges`.
pub fn judge(edges: &Edges) -> Vec<String> {
    let mut findings = Vec::new();
    for (name, direct) in edges {
        let Some((_, reach, named)) = DEPENDS.iter().find(|(n, ..)| n == name) else {
            findings.push(format!(
                "crate {name} has no line in DEPENDS of crates/check/xtask/src/graph.rs; add one"
            ));
            continue;
        };
        let named: BTreeSet<String> = named.iter().map(|n| n.to_string()).collect();
        let permitted = |to: &str| match reach {
            Reach::Exactly => named.contains(to),
            Reach::Through => closure(&permissions(), &named).contains(to),
            Reach::Product => !FOR_TESTS.contains(&to),
            Reach::All => true,
        };
        for to in direct.iter().filter(|to| !permitted(to)) {
            findings.push(format!(
                "crate {name} must not depend on {to}; see the code map of ARCHITECTURE.md"
            ));
        }
        let reached = closure(edges, direct);
        let never = NEVER
            .iter()
            .filter(|(n, _)| n == name)
            .flat_map(|(_, never)| never.iter());
        for to in never.filter(|to| reached.contains(**to)) {
            let path = path(edges, name, to).join(" -> ");
            findings.push(format!(
                "crate {name} must never reach {to}, but does: {path}"
            ));
        }
        if reached.contains(name) {
            findings.push(format!("crate {name} depends on itself"));
        }
    }
    findings
}

fn permissions() -> Edges {
    DEPENDS
        .iter()
        .map(|(n, _, to)| (n.to_string(), to.iter().map(|t| t.to_string()).collect()))
        .collect()
}

/// `from` and everything reached from there.
fn closure(edges: &Edges, from: &BTreeSet<String>) -> BTreeSet<String> {
    let mut reached = from.clone();
    let mut open: Vec<String> = from.iter().cloned().collect();
    while let Some(name) = open.pop() {
        for next in edges.get(&name).into_iter().flatten() {
            if reached.insert(next.clone()) {
                open.push(next.clone());
            }
        }
    }
    reached
}

/// A shortest way from one crate to another that it reaches.
fn path(edges: &Edges, from: &str, to: &str) -> Vec<String> {
    let mut ways = vec![vec![from.to_string()]];
    let mut seen = BTreeSet::new();
    while !ways.is_empty() {
        let mut next = Vec::new();
        for way in ways {
            for step in way.last().and_then(|l| edges.get(l)).into_iter().flatten() {
                if seen.insert(step.clone()) {
                    let longer: Vec<String> = way.iter().cloned().chain([step.clone()]).collect();
                    if step == to {
                        return longer;
                    }
                    next.push(longer);
                }
            }
        }
        ways = next;
    }
    Vec::new()
}

/// The graph as the manifests say it, and findings about the manifests.
pub fn read(root: &Path) -> Result<(Edges, Vec<String>), String> {
    let workspace = parse(&root.join("Cargo.toml"))?;
    let shared = table(&workspace, &["workspace", "dependencies"])
        .cloned()
        .unwrap_or_default();
    let (mut edges, mut findings) = (Edges::new(), Vec::new());
    for crate::Member { name, folder: at } in members(root) {
        let manifest = parse(&root.join(&at).join("Cargo.toml"))?;
        let package = table(&manifest, &["package"])
            .and_then(|p| p.get("name"))
            .and_then(Value::as_str);
        let as_published = match name.as_str() {
            "shopfloor" | "shopfloor-cli" | "xtask" => name.clone(),
            _ => format!("shopfloor-{name}"),
        };
        if package != Some(&as_published) {
            findings.push(format!("the package in {at} must be named {as_published}"));
        }
        if table(&manifest, &["lints"])
            .and_then(|l| l.get("workspace"))
            .and_then(Value::as_bool)
            != Some(true)
        {
            findings.push(format!("{at}/Cargo.toml lacks [lints] workspace = true"));
        }
        let for_targets = table(&manifest, &["target"])
            .into_iter()
            .flatten()
            .filter_map(|(_, t)| t.as_object());
        let direct = [&manifest]
            .into_iter()
            .chain(for_targets)
            .flat_map(|t| {
                ["dependencies", "build-dependencies"]
                    .into_iter()
                    .filter_map(|k| table(t, &[k]))
            })
            .flatten()
            .filter_map(|(key, value)| folder(value, shared.get(key)))
            .collect();
        edges.insert(name, direct);
    }
    Ok((edges, findings))
}

/// Name of the folder of a dependency; none for crates from elsewhere.
fn folder(own: &Value, shared: Option<&Value>) -> Option<String> {
    let inherited = own.get("workspace").and_then(Value::as_bool) == Some(true);
    let path = if inherited {
        shared?.get("path")?
    } else {
        own.get("path")?
    };
    Some(
        Path::new(path.as_str()?)
            .file_name()?
            .to_string_lossy()
            .into_owned(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn edges(list: &[(&str, &[&str])]) -> Edges {
        list.iter()
            .map(|(n, to)| (n.to_string(), to.iter().map(|t| t.to_string()).collect()))
            .collect()
    }

    #[test]
    fn arrows_between_groups_go_one_way() {
        let member = |name: &str, folder: &str| crate::Member {
            name: name.into(),
            folder: folder.into(),
        };
        let crates = [
            member("graph", "crates/model/graph"),
            member("kernel", "crates/plan/kernel"),
        ];
        let of = |from: &str, to: &str| groups(&crates, &edges(&[(from, &[to])]));
        assert_eq!(of("kernel", "graph"), Vec::<String>::new());
        assert!(of("graph", "kernel")[0].contains("later group plan"));
        let astray = [member("graph", "crates/graph")];
        assert!(groups(&astray, &Edges::new())[0].contains("folder of a group"));
    }

    #[test]
    fn forbidden_edges_are_found() {
        for (from, to) in [
            ("runtime", "planner"),
            ("runtime", "graph"),
            ("rewrite", "machine"),
            ("planner", "device"),
            ("emit", "device"),
            ("kernel", "graph"),
            ("plan", "graph"),
            ("shopfloor-cli", "runtime"),
            ("shopfloor", "testkit"),
            ("layout", "tensor"),
        ] {
            assert!(
                !judge(&edges(&[(from, &[to]), (to, &[])])).is_empty(),
                "{from} -> {to}"
            );
        }
        for (from, to) in [
            ("runtime", "kernel"),
            ("cpu", "graph"),
            ("testkit", "cpu"),
            ("shopfloor-cli", "shopfloor"),
        ] {
            assert_eq!(
                judge(&edges(&[(from, &[to]), (to, &[])])),
                Vec::<String>::new(),
                "{from} -> {to}"
            );
        }
    }

    #[test]
    fn walls_hold_through_others() {
        let found = judge(&edges(&[
            ("runtime", &["device"]),
            ("device", &["plan"]),
            ("plan", &["graph"]),
            ("graph", &[]),
        ]));
        assert!(
            found
                .iter()
                .any(|f| f.contains("runtime -> device -> plan -> graph")),
            "{found:?}"
        );
        assert!(judge(&edges(&[("newcomer", &[])]))[0].contains("DEPENDS"));
        assert!(
            judge(&edges(&[("plan", &["kernel"]), ("kernel", &["plan"])]))
                .iter()
                .any(|f| f.contains("itself"))
        );
    }
}
