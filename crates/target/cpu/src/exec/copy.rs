//! Copies between strided tiles of up to 16 axes.
use super::MAX_AXES;
use crate::ukr::{Kernels, copy_strided};

/// Axes of a copy, outermost first by destination, neighbours merged where both sides continue.
struct Dims {
    n: usize,
    len: [i64; MAX_AXES],
    ds: [i64; MAX_AXES],
    ss: [i64; MAX_AXES],
}

fn normal(ds: &[i64], ss: &[i64], len: &[i64]) -> Option<Dims> {
    let mut d = Dims {
        n: 0,
        len: [1; MAX_AXES],
        ds: [0; MAX_AXES],
        ss: [0; MAX_AXES],
    };
    for i in 0..len.len() {
        if len[i] <= 0 {
            return None;
        }
        if len[i] == 1 {
            continue;
        }
        let mut at = d.n;
        while at > 0 && (d.ds[at - 1].abs(), d.ss[at - 1].abs()) < (ds[i].abs(), ss[i].abs()) {
            (d.len[at], d.ds[at], d.ss[at]) = (d.len[at - 1], d.ds[at - 1], d.ss[at - 1]);
            at -= 1;
        }
        (d.len[at], d.ds[at], d.ss[at]) = (len[i], ds[i], ss[i]);
        d.n += 1;
    }
    let mut i = 0;
    while i + 1 < d.n {
        if d.ds[i] == d.ds[i + 1] * d.len[i + 1] && d.ss[i] == d.ss[i + 1] * d.len[i + 1] {
            (d.ds[i], d.ss[i]) = (d.ds[i + 1], d.ss[i + 1]);
            d.len[i] *= d.len[i + 1];
            for j in i + 1..d.n - 1 {
                (d.len[j], d.ds[j], d.ss[j]) = (d.len[j + 1], d.ds[j + 1], d.ss[j + 1]);
            }
            d.n -= 1;
        } else {
            i += 1;
        }
    }
    Some(d)
}

/// Times that an element may be repeated for its row to be taken as a whole.
const REPEATED: i64 = 64;
/// Elements that are stored together where one is repeated as often or more.
const STORED: usize = 8;

/// `dst[i * times + j] = src[i * step]` for i < n, j < times.
///
/// # Safety
///
/// The source has `n` elements, the destination `n * times`; no overlap.
unsafe fn repeat(times: usize, n: usize, src: *const u32, step: isize, dst: *mut u32) {
    // SAFETY: the caller's contract; the destination may hold anything.
    unsafe {
        if times == 2 {
            let dst = dst.cast::<u64>();
            let two = |v: u32| u64::from(v) | u64::from(v) << 32;
            if step == 1 {
                for i in 0..n {
                    dst.add(i).write_unaligned(two(*src.add(i)));
                }
            } else {
                for i in 0..n {
                    let v = *src.wrapping_offset(i as isize * step);
                    dst.add(i).write_unaligned(two(v));
                }
            }
            return;
        }
        if times >= STORED {
            for i in 0..n {
                let v = [*src.wrapping_offset(i as isize * step); STORED];
                let to = dst.add(i * times);
                for j in (0..times - STORED).step_by(STORED) {
                    to.add(j).cast::<[u32; STORED]>().write_unaligned(v);
                }
                // The last ones may lie over some of those before.
                to.add(times - STORED)
                    .cast::<[u32; STORED]>()
                    .write_unaligned(v);
            }
            return;
        }
        for i in 0..n {
            let v = *src.wrapping_offset(i as isize * step);
            for j in 0..times {
                *dst.add(i * times + j) = v;
            }
        }
    }
}

/// `dst[i * ds] = src[i * ss]` for all coordinates below `len`; strides in elements of `elem` bytes
/// (1, 2, 4 or 8), source strides may be 0, any may be negative.
///
/// # Safety
///
/// Every address is valid; source and destination do not overlap.
pub(crate) unsafe fn strided_copy(
    k: &Kernels,
    elem: usize,
    dst: *mut u8,
    ds: &[i64],
    src: *const u8,
    ss: &[i64],
    len: &[i64],
) {
    // A few rows that are contiguous on both sides need no sorting of axes.
    if let (&[rows, n], &[to, 1], &[from, 1]) = (len, ds, ss) {
        for i in 0..if n > 0 { rows } else { 0 } {
            let at = |p: i64| (i * p * elem as i64) as isize;
            // SAFETY: rows of the caller's.
            unsafe {
                let (d, s) = (dst.offset(at(to)), src.offset(at(from)));
                std::ptr::copy_nonoverlapping(s, d, n as usize * elem);
            }
        }
        return;
    }
    let Some(d) = normal(ds, ss, len) else { return };
    let e = elem as i64;
    if d.n == 0 {
        // SAFETY: one element on each side.
        unsafe { std::ptr::copy_nonoverlapping(src, dst, elem) };
        return;
    }
    let l = d.n - 1;
    // A dimension contiguous on the other side: transposed in blocks.
    let unit = (elem == 4 && d.ds[l] == 1 && d.ss[l] > 1)
        .then(|| (0..l).find(|&j| d.ss[j] == 1 && d.ds[j] > 0))
        .flatten();
    // Each element repeated a few times, contiguously: done for a whole row of them.
    let repeated = (elem == 4 && l > 0 && d.ds[l] == 1 && d.ss[l] == 0 && d.len[l] <= REPEATED)
        .then(|| l - 1)
        .filter(|&j| d.ds[j] == d.len[l]);
    let unit = unit.or(repeated);
    let mut c = [0i64; MAX_AXES];
    let (mut dp, mut sp) = (dst, src);
    loop {
        // SAFETY: the caller vouches for every address; lengths and strides are the caller's.
        unsafe {
            match unit {
                Some(j) if repeated.is_some() => {
                    repeat(
                        d.len[l] as usize,
                        d.len[j] as usize,
                        sp.cast(),
                        d.ss[j] as isize,
                        dp.cast(),
                    );
                }
                Some(j) => (k.transpose32)(
                    d.len[l] as usize,
                    d.len[j] as usize,
                    sp.cast(),
                    d.ss[l] as usize,
                    dp.cast(),
                    d.ds[j] as usize,
                ),
                None => row(elem, dp, d.ds[l], sp, d.ss[l], d.len[l] as usize),
            }
        }
        let mut i = l;
        loop {
            if i == 0 {
                return;
            }
            i -= 1;
            if Some(i) == unit {
                continue;
            }
            c[i] += 1;
            dp = dp.wrapping_offset((d.ds[i] * e) as isize);
            sp = sp.wrapping_offset((d.ss[i] * e) as isize);
            if c[i] < d.len[i] {
                break;
            }
            dp = dp.wrapping_offset((-d.ds[i] * e * d.len[i]) as isize);
            sp = sp.wrapping_offset((-d.ss[i] * e * d.len[i]) as isize);
            c[i] = 0;
        }
    }
}

/// Address of the loop over rows of elements of `elem` bytes.
pub(crate) fn row_code(elem: usize) -> usize {
    match elem {
        1 => copy_strided::<u8> as *const () as usize,
        2 => copy_strided::<u16> as *const () as usize,
        4 => copy_strided::<u32> as *const () as usize,
        _ => copy_strided::<u64> as *const () as usize,
    }
}

/// One row of `n` elements.
///
/// # Safety
///
/// As for [`strided_copy`].
unsafe fn row(elem: usize, dst: *mut u8, ds: i64, src: *const u8, ss: i64, n: usize) {
    let (d, s) = (ds as isize, ss as isize);
    // SAFETY: the caller's contract. Elements are unaligned at worst for types that files hold;
    // every buffer is aligned to its element (unaligned weights are copied when compiled).
    unsafe {
        match elem {
            1 => copy_strided::<u8>(dst, d, src, s, n),
            2 => copy_strided::<u16>(dst.cast(), d, src.cast(), s, n),
            4 => copy_strided::<u32>(dst.cast(), d, src.cast(), s, n),
            _ => copy_strided::<u64>(dst.cast(), d, src.cast(), s, n),
        }
    }
}

/// Sets every element below `len` to `value` (its first `elem` bytes).
///
/// # Safety
///
/// Every address is valid for writing.
pub(crate) unsafe fn strided_fill(
    k: &Kernels,
    elem: usize,
    dst: *mut u8,
    ds: &[i64],
    value: &[u8; 8],
    len: &[i64],
) {
    // SAFETY: the source is one element, broadcast.
    unsafe {
        strided_copy(
            k,
            elem,
            dst,
            ds,
            value.as_ptr(),
            &[0; MAX_AXES][..len.len()],
            len,
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::isa::Isa;

    #[test]
    fn elements_are_repeated_as_often_as_asked() {
        let k = crate::ukr::kernels::kernels(Isa::Portable);
        for times in 1..=REPEATED + 3 {
            for n in [1, 2, 5] {
                let from: Vec<u32> = (1..=n as u32).collect();
                let count = (n * times) as usize;
                let mut to = vec![0u32; count + 1];
                let (len, ds, ss) = ([n, times], [times, 1], [1, 0]);
                // SAFETY: `n` elements and `n * times` of them.
                unsafe {
                    strided_copy(
                        k,
                        4,
                        to.as_mut_ptr().cast(),
                        &ds,
                        from.as_ptr().cast(),
                        &ss,
                        &len,
                    )
                };
                let want = from
                    .iter()
                    .flat_map(|&v| std::iter::repeat_n(v, times as usize));
                let want: Vec<u32> = want.chain([0]).collect();
                assert_eq!(to, want, "{n} elements {times} times");
            }
        }
    }
}
