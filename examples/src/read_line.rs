//! A line of text in a picture.
use crate::{Failure, argmax, bundled};
use shopfloor::{DType, Session, Tensor};
use shopfloor_tools::data;

/// Reads `models/ppocr_rec/line.png`.
///
/// `x` is f32 [1, 3, 48, width], blue before green before red, -1 (black) to 1 (white). The output
/// is f32 [1, columns, classes]; class k is line k of labels.txt, and class 0 stands for nothing.
///
/// # Errors
/// Files that are missing or damaged.
pub fn run() -> Result<String, Failure> {
    let labels = std::fs::read_to_string(bundled("ppocr_rec", "labels.txt"))?;
    let labels: Vec<&str> = labels.split('\n').collect();
    let picture = data::read_png(bundled("ppocr_rec", "line.png"))?;
    let &[h, w, channels] = picture.shape() else {
        return Err("the picture has no channels".into());
    };
    let mut x = Tensor::zeros(DType::F32, &[1, 3, h, w])?;
    for c in 0..3 {
        for p in 0..h * w {
            let from = if channels == 3 { p * 3 + (2 - c) } else { p };
            x.set_f64(c * h * w + p, (picture.get_f64(from) / 255.0 - 0.5) / 0.5);
        }
    }
    let session = Session::builder().commit_from_file(bundled("ppocr_rec", "model.onnx"))?;
    let outputs = session.run(shopfloor::inputs!["x" => &x])?;
    let y = &outputs[0];
    let &[_, columns, classes] = y.shape() else {
        return Err("the output has another rank than 3".into());
    };
    // Connectionist temporal classification: the best class of each column, repeats merged, class 0 dropped.
    let (mut text, mut before) = (String::new(), 0);
    for c in 0..columns {
        let k = argmax(y, c * classes, classes);
        if k != 0 && k != before {
            text.push_str(labels.get(k).unwrap_or(&"?").trim_end_matches('\r'));
        }
        before = k;
    }
    Ok(text)
}
