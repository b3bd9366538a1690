//! The checks of `cargo xtask tidy`, one test each.

fn holds(name: &str) {
    let check = xtask::CHECKS
        .iter()
        .find(|c| c.name == name)
        .expect("a check of that name");
    let findings = (check.run)(&xtask::root());
    assert!(
        findings.is_empty(),
        "not so: {}\n{}",
        check.holds,
        findings.join("\n")
    );
}

macro_rules! tests {
    ($($test:ident $name:literal)*) => {
        $(#[test]
        fn $test() {
            holds($name);
        })*

        #[test]
        fn every_check_is_a_test() {
            let tested = [$($name),*];
            assert!(xtask::CHECKS.iter().map(|c| c.name).eq(tested));
        }
    };
}

tests! {
    crates_depend_only_on_what_they_may "crate-graph"
    the_library_brings_few_packages "packages"
    crates_can_be_published "publishing"
    the_wheel_is_built_as_all_else "profiles"
    assertions_are_checked "assertions"
    unsafe_code_is_only_where_it_may_be "unsafe-places"
    every_other_crate_forbids_unsafe_code "forbid-lines"
    every_unsafe_block_says_why_it_is_sound "safety-comments"
    no_rust_function_is_too_long "function-sizes"
    files_use_each_other_one_way "circles"
    nothing_is_left_unfinished "leftovers"
    architecture_is_short_and_names_every_crate "architecture"
    the_adding_table_is_true "adding-table"
    readme_is_short_and_starts_with_two_commands "readme"
    no_document_or_table_cell_is_too_long "documents"
    no_document_names_a_commit "commits"
    every_link_leads_to_a_file "links"
    every_day_of_measurements_is_linked "history"
    figures_are_those_of_the_bench_pages "figures"
    status_is_up_to_date_and_its_tests_exist "status"
}
