//! Occupancy against NVIDIA's own calculator: all published vectors where the checkout has them.

use shopfloor_machine::calc::{self, Launch};
use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

#[test]
fn occupancy_agrees_with_every_published_vector() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../../../shared/measurements/occupancy_vectors.csv.gz");
    let unpacked = path
        .is_file()
        .then(|| Command::new("gzip").arg("-dc").arg(&path).output().ok())
        .flatten()
        .filter(|o| o.status.success());
    let Some(out) = unpacked else {
        testing::skip(
            "measurements: 21,819 occupancy vectors",
            "there is no ../shared/measurements, or no gzip",
        );
        return;
    };
    let text = String::from_utf8(out.stdout).unwrap();
    let mut lines = text.lines();
    let head: Vec<&str> = lines.next().unwrap().split(',').collect();
    let at: BTreeMap<&str, usize> = head.iter().enumerate().map(|(i, h)| (*h, i)).collect();
    let mut rows = 0;
    for line in lines {
        let f: Vec<&str> = line.split(',').collect();
        let int = |k: &str| f[at[k]].parse::<i64>().unwrap();
        let n = |k: &str| u64::try_from(int(k)).unwrap();
        let cc = calc::parse_capability(f[at["cc"]]).unwrap();
        let limits = calc::limits_of_capability(cc).unwrap();
        let launch = Launch {
            threads: n("threads_per_block"),
            registers: n("regs_per_thread"),
            shared: n("static_smem_b"),
            dynamic_shared: n("dynamic_smem_b"),
            opt_in: n("optin") == 1,
            carveout: u64::try_from(int("carveout")).ok(),
            barriers: n("barriers"),
        };
        let o = calc::occupancy_of(&limits, &launch).unwrap();
        let limit = |v: Option<u64>| v.map_or(-1, |v| v as i64);
        let got = [
            ("blocks_per_sm", o.ctas as i64),
            ("warps_per_sm", o.warps as i64),
            ("lim_warps", o.limits.warps as i64),
            ("lim_regs", limit(o.limits.registers)),
            ("lim_smem", limit(o.limits.shared)),
            ("lim_blocks", o.limits.ctas as i64),
            ("lim_barriers", limit(o.limits.barriers)),
            ("alloc_regs_per_block", o.registers_per_cta as i64),
            ("alloc_smem_per_block_b", o.shared_per_cta as i64),
        ];
        for (k, v) in got {
            assert_eq!(v, int(k), "{k} of {line}: {o:?}");
        }
        assert_eq!(o.limiters.join("|"), f[at["limiter"]], "{line}: {o:?}");
        rows += 1;
    }
    assert_eq!(rows, 21819);
}
