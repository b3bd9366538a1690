//! What listeners of `tracing` hear of loading, planning and running.
#![cfg(feature = "tracing")]

use shopfloor::{Session, Tensor, inputs};
use std::cell::Cell;
use std::fmt::Debug;
use std::path::Path;
use std::sync::{Arc, Mutex};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};

/// Writes down spans and what happens with their fields, of the thread of the one test that listens: who listens is
/// the same for all threads, since a place in the code that is first reached where nobody does stays silent.
#[derive(Clone, Default)]
struct Heard(Arc<Mutex<Vec<String>>>);

impl Heard {
    fn note(&self, text: String) {
        if LISTENS.get() {
            self.0.lock().unwrap().push(text);
        }
    }
}

thread_local! {
    static LISTENS: Cell<bool> = const { Cell::new(false) };
}

struct Fields(String);

impl Visit for Fields {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        self.0 += &format!(" {field}={value:?}");
    }
}

impl Subscriber for Heard {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target().starts_with("shopfloor") && *metadata.level() == Level::DEBUG
    }
    fn new_span(&self, span: &Attributes<'_>) -> Id {
        let mut fields = Fields(span.metadata().name().to_string());
        span.record(&mut fields);
        self.note(fields.0);
        Id::from_u64(1)
    }
    fn record(&self, _: &Id, _: &Record<'_>) {}
    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn event(&self, event: &Event<'_>) {
        let mut fields = Fields("event".into());
        event.record(&mut fields);
        self.note(fields.0);
    }
    fn enter(&self, _: &Id) {}
    fn exit(&self, _: &Id) {}
}

#[test]
fn loading_planning_and_running_are_spans() {
    let heard = Heard::default();
    let names = || -> Vec<String> {
        let all = std::mem::take(&mut *heard.0.lock().unwrap());
        let name = |s: &String| s.split(' ').next().unwrap_or_default().to_string();
        all.iter().map(name).collect()
    };
    tracing::subscriber::set_global_default(heard.clone()).unwrap();
    LISTENS.set(true);
    let models = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../models");
    let s = Session::builder().with_threads(1);
    let s = s.commit_from_file(models.join("digits_cnn/model.onnx"));
    let s = s.unwrap();
    assert_eq!(names(), ["load"]);
    let run = |n: usize| {
        let x = Tensor::zeros(shopfloor::DType::F32, &[n, 1, 8, 8]).unwrap();
        s.run(inputs!["image" => &x]).unwrap();
    };
    run(1);
    assert_eq!(names(), ["run", "plan"]);
    run(1);
    assert_eq!(names(), ["run"]);
    run(3);
    let all = heard.0.lock().unwrap().join("\n");
    assert!(all.contains("run model=\"digits_cnn\""), "{all}");
    assert_eq!(names(), ["run", "replan"]);
    let mut dims = shopfloor::DimBox::new();
    dims.insert("batch", 1, 2);
    s.swap_plan(s.plan(&dims).unwrap()).unwrap();
    let all = heard.0.lock().unwrap().join("\n");
    assert!(all.contains("the plan changed"), "{all}");
    LISTENS.set(false);
}
