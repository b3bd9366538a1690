//! Pictures beside what the library makes of them.
use layout::DType;
use shopfloor_hostops::run;
use tensor::{Attrs, Tensor};

/// A picture of `channels` as PAM, or of three floats as TIFF, with random values.
fn picture(
    channels: usize,
    depth: usize,
    [width, height]: [u32; 2],
    rng: &mut fastrand::Rng,
) -> Vec<u8> {
    let values = width as usize * height as usize * channels;
    if depth < 4 {
        let kind = ["GRAYSCALE", "GRAYSCALE_ALPHA", "RGB", "RGB_ALPHA"][channels - 1];
        let most = (1u32 << (8 * depth)) - 1;
        let head = format!(
            "P7\nWIDTH {width}\nHEIGHT {height}\nDEPTH {channels}\nMAXVAL {most}\nTUPLTYPE {kind}\nENDHDR\n"
        );
        let values = (0..values * depth).map(|_| rng.u8(..));
        return head.bytes().chain(values).collect();
    }
    let fields = [
        (256, 1, width),
        (257, 1, height),
        (258, 3, 140),
        (259, 1, 1),
        (262, 1, 2),
        (273, 1, 152),
        (277, 1, 3),
        (278, 1, height),
        (279, 1, 4 * values as u32),
        (339, 3, 146),
    ];
    let mut file = b"II*\0\x08\0\0\0\x0a\0".to_vec();
    for (tag, count, value) in fields {
        file.extend(u16::to_le_bytes(tag));
        // 16 bits where there are three of them elsewhere in the file, else 32.
        file.extend(u16::to_le_bytes(if count == 3 { 3 } else { 4 }));
        file.extend(u32::to_le_bytes(count));
        file.extend(value.to_le_bytes());
    }
    file.resize(140, 0);
    file.extend([32u16, 32, 32, 3, 3, 3].map(u16::to_le_bytes).concat());
    for _ in 0..values {
        let x = rng.u32(..1400) as f32 / 1000.0 - 0.2;
        file.extend(if rng.u32(..20) == 0 { f32::NAN } else { x }.to_le_bytes());
    }
    file
}

/// Eight and sixteen bits, one to four channels, and floats, beside what the library makes of them.
#[test]
fn pictures_of_every_depth_have_the_librarys_colours() {
    let mut rng = fastrand::Rng::with_seed(44);
    let kinds = (1..=4).flat_map(|c| [(c, 1), (c, 2)]).chain([(3, 4)]);
    for (channels, depth) in kinds {
        let size = [1 + rng.u32(..9), 1 + rng.u32(..9)];
        let file = picture(channels, depth, size, &mut rng);
        let expected = image::load_from_memory(&file).unwrap().into_rgb8();
        let file = Tensor::from_bytes(DType::U8, &[file.len()], file).unwrap();
        let got = run("ImageDecoder", &Attrs::new(), &[Some(&file)]).unwrap();
        assert_eq!(
            got[0].bytes(),
            &expected.into_raw()[..],
            "{channels} channels of {depth} bytes"
        );
    }
}
