#![no_main]
libfuzzer_sys::fuzz_target!(|bytes: &[u8]| shopfloor_fuzz::read("model", bytes));
