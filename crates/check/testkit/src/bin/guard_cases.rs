//! Runs or records cases of [`testkit::guard`] for the test of that name, in a process that a fault may end.
#![forbid(unsafe_code)]
extern crate shopfloor_testkit as testkit;

fn main() -> std::process::ExitCode {
    #[cfg(target_os = "linux")]
    {
        let args: Vec<String> = std::env::args().skip(1).collect();
        if let Some(ran) = testkit::guard::process(&args) {
            return match ran {
                Ok(()) => std::process::ExitCode::SUCCESS,
                Err(e) => {
                    eprintln!("{e}");
                    std::process::ExitCode::FAILURE
                }
            };
        }
    }
    eprintln!("cargo xtask guard is what looks at kernels");
    std::process::ExitCode::from(2)
}
