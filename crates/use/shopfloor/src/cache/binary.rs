//! Plans and programs as bytes: postcard's form, fields in order and without their names. A field
//! is never left out, or what follows would be taken for it.
use serde::{Serialize, de::DeserializeOwned};

/// `v` in this form; `None` for what has none (a list whose length is not known before it is written).
pub(super) fn to_vec<T: Serialize>(v: &T) -> Option<Vec<u8>> {
    postcard::to_allocvec(v).ok()
}

/// The value whose form `bytes` are, all of them.
pub(super) fn from_slice<T: DeserializeOwned>(bytes: &[u8]) -> Option<T> {
    let (v, rest) = layout::reading(|| postcard::take_from_bytes(bytes)).ok()?;
    rest.is_empty().then_some(v)
}

#[cfg(test)]
mod tests {
    use super::*;
    use layout::{Dim, DimBox};
    use plan::{Plan, Program, Segment};
    use tensor::{Attr, HostValue, Tensor};

    fn digits() -> (Program, Plan) {
        let path = concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/../../../models/digits_cnn/model.onnx"
        );
        let model = crate::Model::open(path, &crate::ModelOptions::default()).unwrap();
        let engine = crate::default_engine(Some(1), None, None).unwrap();
        let session = crate::Session::builder()
            .with_engine(engine)
            .commit(model)
            .unwrap();
        let mut dims = DimBox::new();
        for s in &session.model().program().symbols {
            dims.insert(s.name.clone(), 1, 4);
        }
        let plan = session.plan(&dims).unwrap();
        ((**session.model().program()).clone(), plan)
    }

    #[test]
    fn what_was_written_is_read() {
        let (program, plan) = digits();
        assert_eq!(from_slice::<Plan>(&to_vec(&plan).unwrap()), Some(plan));
        let again: Program = from_slice(&to_vec(&program).unwrap()).unwrap();
        let text = |p: &Program| serde_json::to_string(p).unwrap();
        assert_eq!(text(&again), text(&program));
        // What JSON has no words for, and every kind of attribute.
        let dims = [
            "b*floordiv(h + 1, 2)",
            "max(`a b`, 3)",
            "-7",
            "9223372036854775807",
        ];
        let dims: Vec<Dim> = dims.iter().map(|d| d.parse().unwrap()).collect();
        assert_eq!(from_slice::<Vec<Dim>>(&to_vec(&dims).unwrap()), Some(dims));
        let t = Tensor::from_f32(&[2], &[f32::INFINITY, -0.0]).unwrap();
        let attrs = vec![
            Attr::Int(i64::MIN),
            Attr::Floats(vec![f64::NEG_INFINITY, 1e-300]),
            Attr::Strs(vec![String::new(), "\u{20AC}".into()]),
            Attr::Tensor(t),
        ];
        assert_eq!(
            from_slice::<Vec<Attr>>(&to_vec(&attrs).unwrap()),
            Some(attrs)
        );
    }

    #[test]
    fn hostile_bytes_are_refused_or_another_value() {
        let (program, plan) = digits();
        for (bytes, each) in [
            (to_vec(&plan).unwrap(), 11),
            (to_vec(&program).unwrap(), 13),
        ] {
            let read = |b: &[u8]| {
                let p = from_slice::<Plan>(b).is_some();
                p || from_slice::<Program>(b).is_some()
            };
            for i in (0..bytes.len()).step_by(each) {
                assert!(!read(&bytes[..i]), "cut at {i}");
                for with in [0x01, 0x80, 0xFF] {
                    let mut bad = bytes.clone();
                    bad[i] ^= with;
                    read(&bad);
                    // A length that nothing follows takes no memory.
                    let end = bad.len().min(i + 8);
                    bad[i..end].fill(0xFF);
                    read(&bad);
                }
            }
            let mut longer = bytes.clone();
            longer.push(0);
            assert!(!read(&longer));
        }
        let long = [0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0x7F];
        assert!(from_slice::<Vec<u64>>(&long).is_none());
        assert!(from_slice::<Vec<String>>(&long).is_none());
    }

    #[test]
    fn no_field_of_what_is_kept_is_left_out() {
        fn look(folder: &std::path::Path, found: &mut Vec<String>) {
            for e in std::fs::read_dir(folder).unwrap() {
                let path = e.unwrap().path();
                if path.is_dir() {
                    look(&path, found);
                } else if std::fs::read_to_string(&path)
                    .is_ok_and(|t| t.contains("skip_serializing_if") || t.contains("serde(flatten"))
                {
                    found.push(path.display().to_string());
                }
            }
        }
        let mut found = Vec::new();
        for of in [
            "model/layout",
            "model/tensor",
            "model/expr",
            "plan/kernel",
            "plan/plan",
            "model/onnx",
        ] {
            let path = format!("{}/../../{of}/src", env!("CARGO_MANIFEST_DIR"));
            look(path.as_ref(), &mut found);
        }
        assert_eq!(found, Vec::<String>::new());
    }

    #[test]
    fn nesting_ends() {
        let mut t = Tensor::from_f32(&[], &[1.0]).unwrap();
        let wrap = |t: Tensor| Tensor::from_host_value(HostValue::Optional(Some(Box::new(t))));
        for _ in 0..10 {
            t = wrap(t);
        }
        assert_eq!(from_slice::<Tensor>(&to_vec(&t).unwrap()), Some(t.clone()));
        for _ in 0..100 {
            t = wrap(t);
        }
        assert!(from_slice::<Tensor>(&to_vec(&t).unwrap()).is_none());
        let (mut p, _) = digits();
        p.segments.truncate(1);
        let small = p.clone();
        for _ in 0..100 {
            let branch = Segment::If {
                node: String::new(),
                cond: 0,
                captures: vec![],
                then_branch: Box::new(p),
                else_branch: Box::new(small.clone()),
                outputs: vec![],
            };
            p = Program {
                segments: vec![branch],
                ..small.clone()
            };
        }
        assert!(from_slice::<Program>(&to_vec(&p).unwrap()).is_none());
    }
}
