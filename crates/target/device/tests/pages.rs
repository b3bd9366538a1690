//! Memory in pages of its own.
use shopfloor_device::AlignedBytes;
#[cfg(unix)]
use shopfloor_device::MappedFile;
#[cfg(target_os = "linux")]
use shopfloor_device::{Guard, GuardedBytes};

#[test]
fn large_memory_is_zeroed_aligned_and_goes_back() {
    for len in [1, 63, 1 << 20, (2 << 20) + 5, 9 << 20] {
        let mut b = AlignedBytes::new(len, "a test").unwrap();
        assert_eq!(b.len(), len);
        assert_eq!(b.as_ptr() as usize % AlignedBytes::ALIGN, 0);
        assert!(b.iter().all(|&x| x == 0));
        b[len - 1] = 7;
        assert_eq!(b[len - 1], 7);
    }
    assert!(AlignedBytes::new(usize::MAX / 2, "a test").is_err());
}

#[test]
fn memory_grows_in_its_own_pages() {
    for (small, large) in [
        (1, 64),
        (100, 3 << 20),
        (1 << 20, 2 << 20),
        (3 << 20, 9 << 20),
    ] {
        let mut b = AlignedBytes::new(small, "a test").unwrap();
        b.fill(3);
        b.grow(large, "a test").unwrap();
        assert_eq!(b.len(), large);
        b[large - 1] = 7;
        // Pages keep what they hold; what is behind them is new.
        if cfg!(target_os = "linux") && small >= 1 << 20 {
            assert!(b[..small].iter().all(|&x| x == 3));
            assert!(b[small..large - 1].iter().all(|&x| x == 0));
        }
        b.grow(small, "a test").unwrap();
        assert_eq!(b.len(), large);
    }
    let mut b = AlignedBytes::new(2 << 20, "a test").unwrap();
    assert!(b.grow(usize::MAX / 2, "a test").is_err());
    assert!(b.is_empty());
}

#[cfg(target_os = "linux")]
#[test]
fn guarded_bytes_end_or_begin_at_their_guard() {
    for len in [0, 1, 4095, 4096, 64 << 10, (64 << 10) + 1] {
        for guard in [Guard::Before, Guard::Behind] {
            let mut b = GuardedBytes::new(len, guard).unwrap();
            assert_eq!(b.len(), len);
            assert!(b.iter().all(|&x| x == 0));
            b.fill(3);
            let edge = match guard {
                Guard::Before => b.as_ptr() as usize,
                Guard::Behind => b.as_ptr() as usize + len,
            };
            assert_eq!(edge % 4096, 0);
        }
    }
    assert!(GuardedBytes::new(usize::MAX - 5, Guard::Behind).is_err());
}

#[cfg(unix)]
#[test]
fn files_are_seen_as_memory() {
    let path = std::env::temp_dir().join(format!("shopfloor-pages-{}", std::process::id()));
    std::fs::write(&path, b"abc").unwrap();
    let m = MappedFile::new(&std::fs::File::open(&path).unwrap()).unwrap();
    assert_eq!(m.as_ref(), b"abc");
    std::fs::write(&path, b"").unwrap();
    assert!(
        MappedFile::new(&std::fs::File::open(&path).unwrap())
            .unwrap()
            .as_ref()
            .is_empty()
    );
    std::fs::remove_file(&path).unwrap();
}
