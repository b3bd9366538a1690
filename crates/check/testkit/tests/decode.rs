//! Decoding with a KV cache: 32 tokens in a row inside one plan, the cache aliased in place,
//! against a session that is handed the cache anew for every token.
use layout::DType;
use shopfloor::{Dim, DimBox, ModelOptions, Session, Tensor};
use testkit::{named, zoo};

const TOKENS: usize = 32;
const PROMPT: &[i64] = &[11, 7, 5, 3];

fn argmax(logits: &Tensor) -> i64 {
    let values = logits.to_f32().expect("logits are f32");
    let width = *logits.shape().last().expect("logits have a last dimension");
    let last = &values[values.len() - width..];
    let mut best = 0;
    for (i, v) in last.iter().enumerate() {
        if *v > last[best] {
            best = i;
        }
    }
    best as i64
}

fn step_inputs(names: &[String], tokens: &[i64], past: usize) -> Vec<(String, Tensor)> {
    let n = tokens.len();
    let mut out = Vec::new();
    for name in names {
        let t = match name.as_str() {
            "input_ids" => Tensor::from_i64(&[1, n], tokens),
            "attention_mask" => Tensor::from_i64(&[1, past + n], &vec![1; past + n]),
            "position_ids" => Tensor::from_i64(
                &[1, n],
                &(past..past + n).map(|p| p as i64).collect::<Vec<_>>(),
            ),
            _ => continue,
        };
        out.push((name.clone(), t.expect("a small tensor")));
    }
    out
}

fn decode(model: &str) {
    let Some(model) = zoo::find(model) else {
        zoo::skip(&[model]);
        return;
    };
    let prepared = model.prepare_temporary().expect("weights");
    let inputs = model.inputs().expect("inputs");
    let names: Vec<String> = inputs.iter().map(|(n, _)| n.clone()).collect();
    let pasts: Vec<(String, Vec<usize>)> = inputs
        .iter()
        .filter(|(n, _)| n.starts_with("past_key_values."))
        .map(|(n, t)| (n.clone(), t.shape().to_vec()))
        .collect();
    assert!(!pasts.is_empty());
    let mut options = ModelOptions::default();
    for (p, _) in &pasts {
        options
            .states
            .push((p.clone(), p.replace("past_key_values", "present")));
    }
    // A mask with a length of its own is bound to what it must be: past and new tokens.
    let total = Dim::sym("past_sequence_length") + Dim::sym("sequence_length");
    options
        .shapes
        .insert("attention_mask".into(), vec![Dim::sym("batch_size"), total]);
    let session = Session::builder()
        .with_threads(2)
        .with_model_options(options)
        .commit_from_file(&prepared.model)
        .expect("session");
    let mut dims = DimBox::new();
    for s in &session.model().program().symbols {
        let range = match &*s.name {
            "batch_size" => (1, 1),
            "past_sequence_length" => (0, (PROMPT.len() + TOKENS) as i64),
            _ => (1, PROMPT.len() as i64),
        };
        dims.insert(s.name.clone(), range.0, range.1);
    }
    let mut stream = session.stream(&dims).expect("stream");
    assert_eq!(
        stream.in_place().len(),
        pasts.len(),
        "every cache stays in place"
    );
    let before = session.runtime().engine().memory().packed;

    let plain = Session::builder()
        .with_threads(2)
        .commit_from_file(&prepared.model)
        .expect("session");
    let mut cache: Vec<(String, Tensor)> = pasts
        .iter()
        .map(|(n, s)| {
            (
                n.clone(),
                Tensor::zeros(DType::F32, &[1, s[1], 0, s[3]]).expect("empty cache"),
            )
        })
        .collect();
    let mut tokens = PROMPT.to_vec();
    let mut past = 0;
    for i in 0..TOKENS {
        let given = step_inputs(&names, &tokens, past);
        let named: Vec<(&str, &Tensor)> = given.iter().map(|(n, t)| (n.as_str(), t)).collect();
        let streamed = stream.run(&named).expect("a streamed token");
        let mut all = named.clone();
        all.extend(cache.iter().map(|(n, t)| (n.as_str(), t)));
        let passed = plain
            .run(&all)
            .expect("a token with the cache passed through")
            .into_vec();
        let logits = |o: &[(String, Tensor)]| {
            o.iter()
                .find(|(n, _)| n == "logits")
                .expect("logits")
                .1
                .clone()
        };
        let (a, b) = (logits(&streamed), logits(&passed));
        let d = testkit::compare::difference(&a, &b);
        assert!(
            d <= 1e-5,
            "{} token {i}: the stream's logits differ by {d:.2e}",
            model.name()
        );
        assert_eq!(argmax(&a), argmax(&b), "token {i}");
        past += tokens.len();
        tokens = vec![argmax(&a)];
        cache = passed
            .into_iter()
            .filter(|(n, _)| n.starts_with("present."))
            .map(|(n, t)| (n.replace("present", "past_key_values"), t))
            .collect();
    }
    // One plan for the whole life of the stream: nothing was packed anew.
    assert_eq!(before, session.runtime().engine().memory().packed);
}

#[test]
fn a_decoder_decodes_in_place() {
    let share = testing::Share::of_run(5);
    println!("{share}");
    let models = ["llama_gqa_ts", "gpt2_kv"];
    for (_, name) in (0..).zip(models).filter(|(i, _)| share.picks(*i)) {
        decode(name);
    }
}

/// Keys that are turned by their place are written by two kernels, a half each, behind the past that lies there.
#[test]
fn keys_that_are_turned_stay_in_place() {
    let small = named::Decoder {
        dtype: DType::F32,
        past: 3,
        layers: 2,
        width: 64,
        heads: [4, 2, 16],
        hidden: 96,
        words: 50,
        places: 32,
    };
    let dir = tempfile::tempdir().expect("a folder");
    named::write_decoder("small", &small, dir.path()).expect("a model");
    let models = zoo::models_in(dir.path()).expect("a folder of models");
    let prepared = models[0].prepare_temporary().expect("weights");
    let session = |find_states| {
        let options = ModelOptions {
            find_states,
            ..ModelOptions::default()
        };
        let builder = Session::builder().with_threads(2);
        let builder = builder.with_model_options(options);
        builder.commit_from_file(&prepared.model).expect("session")
    };
    let (streamed, plain) = (session(true), session(false));
    let mut dims = DimBox::new();
    dims.insert("past", 0, 31);
    let mut stream = streamed.stream(&dims).expect("stream");
    assert_eq!(stream.in_place().len(), 4, "every cache stays in place");
    let empty = |name: &str| {
        let t = Tensor::zeros(DType::F32, &[1, 2, 0, 16]).expect("an empty cache");
        (name.to_string(), t)
    };
    let caches = (0..2).flat_map(|l| ["key", "value"].map(|w| format!("past_key_values.{l}.{w}")));
    let mut cache: Vec<(String, Tensor)> = caches.map(|n| empty(&n)).collect();
    let names = ["input_ids", "position_ids"].map(String::from);
    for past in 0..8 {
        let given = step_inputs(&names, &[(7 * past % 50) as i64], past);
        let named: Vec<(&str, &Tensor)> = given.iter().map(|(n, t)| (n.as_str(), t)).collect();
        let here = stream.run(&named).expect("a streamed token");
        let mut all = named.clone();
        all.extend(cache.iter().map(|(n, t)| (n.as_str(), t)));
        let there = plain.run(&all).expect("a token").into_vec();
        let words = |o: &[(String, Tensor)]| {
            let found = o.iter().find(|(n, _)| !n.starts_with("present"));
            found.expect("words").1.clone()
        };
        let d = testkit::compare::difference(&words(&here), &words(&there));
        assert!(d <= 1e-5, "token {past}: {d:.2e} apart");
        let caches = there.into_iter().filter(|(n, _)| n.starts_with("present."));
        let name = |n: String| n.replace("present", "past_key_values");
        cache = caches.map(|(n, t)| (name(n), t)).collect();
    }
}
