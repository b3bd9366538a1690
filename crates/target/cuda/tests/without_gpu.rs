//! What can be had of the driver layer without a GPU.
use shopfloor_cuda::{Driver, DriverError, Nvidia};

/// A machine without a driver gets one sentence that says what to do; one with a driver gets its GPUs.
#[test]
fn loading_is_clean() {
    match Nvidia::load() {
        Err(e @ (DriverError::NoLibrary { .. } | DriverError::NoSymbol { .. })) => {
            let text = e.to_string();
            assert!(text.contains("driver"), "{text}");
        }
        // A library without a GPU behind it does not start.
        Err(DriverError::Call { call, .. }) => assert_eq!(call, "cuInit"),
        Err(e) => panic!("{e}"),
        Ok(driver) => {
            let devices = driver.devices().unwrap();
            let n = devices.len() as u32;
            assert!(matches!(
                driver.open(n),
                Err(DriverError::NoDevice { ordinal, count }) if ordinal == n && count == n
            ));
        }
    }
}
