//! NonMaxSuppression: the best boxes per batch and class that overlap no better one too much.
use crate::args::Args;
use crate::data::{f32s, from_i64s};
use crate::error::R;
use tensor::Tensor;

/// Corners of a box, smaller ones first.
fn corners(b: &[f32], center: bool) -> [f32; 4] {
    if center {
        let (x, y, w, h) = (b[0], b[1], b[2], b[3]);
        [y - h / 2.0, x - w / 2.0, y + h / 2.0, x + w / 2.0]
    } else {
        [
            b[0].min(b[2]),
            b[1].min(b[3]),
            b[0].max(b[2]),
            b[1].max(b[3]),
        ]
    }
}

/// Intersection over union.
fn overlap(p: &[f32; 4], q: &[f32; 4]) -> f32 {
    let h = p[2].min(q[2]) - p[0].max(q[0]);
    let w = p[3].min(q[3]) - p[1].max(q[1]);
    if h <= 0.0 || w <= 0.0 {
        return 0.0;
    }
    let area = |b: &[f32; 4]| (b[2] - b[0]) * (b[3] - b[1]);
    let (pa, qa) = (area(p), area(q));
    let both = h * w;
    let either = pa + qa - both;
    if pa <= 0.0 || qa <= 0.0 || either <= 0.0 {
        0.0
    } else {
        both / either
    }
}

pub(crate) fn run(a: &Args) -> R<Vec<Tensor>> {
    let (boxes, scores) = (a.ranked(0, 3)?, a.ranked(1, 3)?);
    let [batches, n, 4] = *boxes.shape() else {
        return Err(format!(
            "boxes have shape {:?}, not [batch, boxes, 4]",
            boxes.shape()
        )
        .into());
    };
    let classes = scores.shape()[1];
    if scores.shape() != [batches, classes, n] {
        return Err(format!("scores of shape {:?} do not fit {n} boxes", scores.shape()).into());
    }
    let limit = a.float_or(2, 0.0).max(0.0) as usize;
    let iou = a.float_or(3, 0.0) as f32;
    let least = a.opt(4).map(|t| {
        if t.is_empty() {
            f32::MIN
        } else {
            t.get_f64(0) as f32
        }
    });
    let center = a.int("center_point_box", 0)? != 0;
    let (bv, sv) = (f32s(boxes), f32s(scores));
    let mut picked: Vec<i64> = Vec::new();
    for b in 0..batches {
        let list: Vec<[f32; 4]> = (0..n)
            .map(|i| corners(&bv[(b * n + i) * 4..][..4], center))
            .collect();
        for c in 0..classes {
            let s = &sv[(b * classes + c) * n..][..n];
            let mut order: Vec<usize> =
                (0..n).filter(|i| least.is_none_or(|l| s[*i] > l)).collect();
            order.sort_by(|p, q| s[*q].total_cmp(&s[*p]));
            let mut kept: Vec<usize> = Vec::new();
            for i in order {
                if kept.len() >= limit {
                    break;
                }
                if kept.iter().all(|k| overlap(&list[*k], &list[i]) <= iou) {
                    kept.push(i);
                    picked.extend([b as i64, c as i64, i as i64]);
                }
            }
        }
    }
    Ok(vec![from_i64s(&[picked.len() / 3, 3], &picked)?])
}
