//! Long tests that take turns: every commit runs some of them, and a few commits run all.
//!
//! Which turn a test has follows from what all of them take, so that no commit's run is much longer than another's.

use crate::Share;
use crate::skipped::note;

/// A test that takes turns.
struct Turn {
    /// Its name, as it is listed where it is left out.
    name: &'static str,
    /// It runs once in so many commits: a factor of [`SLOTS`].
    of: u64,
    /// What it takes on one core, as `cargo xtask slow-tests` prints it with `SHOPFLOOR_TURNS=all`.
    seconds: f64,
}

/// Turns after which all tests had theirs.
const SLOTS: usize = 15;

const fn one_of(of: u64, name: &'static str, seconds: f64) -> Turn {
    Turn { name, of, seconds }
}

/// All of them. A new one comes with the seconds that it was measured to take.
#[rustfmt::skip]
const TURNS: &[Turn] = &[
    one_of(5, "requests_are_called_off_between_submissions", 1.0),
    one_of(5, "webgpu: ppocr_cls", 1.0),
    one_of(5, "webgpu: silero_vad", 1.0),
    one_of(3, "matrix_instructions_and_copies_keep_to_the_rules", 1.0),
    one_of(2, "shuffles_give_the_same", 1.0),
    one_of(5, "steps_of_more_tasks_than_a_submission_takes_are_cut", 1.0),
    one_of(3, "webgpu: every_family_agrees_with_the_reference", 1.0),
    one_of(5, "what_is_timed_is_there", 1.0),
    one_of(5, "an_emulated_gpu_is_checked_and_described", 1.0),
    one_of(5, "products_are_timed_stage_by_stage", 1.0),
    one_of(5, "the_suite_takes_the_time_there_is", 1.0),
    one_of(3, "streams_come_and_go_on_a_gpu", 1.0),
    one_of(3, "broken_plans_of_the_planner_are_refused", 1.0),
    one_of(5, "a_kernel_that_stays_leaves_the_rest_out", 1.0),
    one_of(3, "step_by_step_nothing_is_launched_after_the_call", 1.0),
    one_of(3, "the_first_request_of_a_kernel_can_be_called_off", 1.0),
    one_of(3, "the_host_is_a_few_launches_ahead_of_the_gpu", 1.0),
    one_of(3, "weights_on_their_way_do_not_meet_those_of_the_next_request", 1.0),
    one_of(3, "every_kernel_of_these_models_is_what_it_says", 1.0),
    one_of(5, "both_devices_run_their_steps", 1.0),
    one_of(5, "no_cut_is_predicted_to_take_longer_than_a_device_alone", 1.0),
    one_of(5, "steps_go_to_the_other_device_beside_traffic", 1.0),
    one_of(3, "values_of_many_pieces_come_and_go_whole", 1.0),
    one_of(5, "any_function_follows_a_product_on_tensor_cores", 1.0),
    one_of(3, "a_thousand_swaps_under_load", 1.0),
    one_of(3, "a_request_that_is_called_off_leaves_the_graphs_behind_it_out", 1.0),
    one_of(3, "weights_are_copied_before_the_kernels_before_are_over", 1.0),
    one_of(3, "host_steps_are_few_and_known", 1.0),
    one_of(3, "sizes_may_change_from_request_to_request", 1.0),
    one_of(3, "they_give_the_bits_of_launches_of_their_own", 1.0),
    one_of(3, "kernels_of_models_and_their_plans_are_read_back", 1.0),
    one_of(3, "kernels_of_random_plans_are_read_back", 1.0),
    one_of(3, "warps_that_copy_are_assembled_to_hoppers_instructions", 1.0),
    one_of(3, "attention_is_planned_for_warpgroups", 1.0),
    one_of(3, "emulated: the_emulator_runs_the_text", 1.0),
    one_of(3, "f32_copies_ahead_and_the_emulator_runs_the_text", 1.0),
    one_of(5, "ptxas_assembles_without_spills", 1.0),
    one_of(3, "reference_evaluates_the_tile_programs", 1.0),
    one_of(3, "one_thread_and_several_plan_the_same", 1.0),
    one_of(5, "models_of_many_nodes_are_planned", 1.0),
    one_of(3, "matrix_units_multiply_as_exactly_as_was_asked_for", 1.0),
    one_of(3, "arenas_are_little_more_than_what_lives_at_once", 1.0),
    one_of(3, "every_model_is_planned_for_gpus", 1.0),
    one_of(3, "seeds_are_sound_and_damage_is_harmless", 1.0),
    one_of(5, "a_gru_of_one_position_has_a_schedule_on_gpus", 1.0),
    one_of(5, "tile_programs_agree_with_the_oracle", 1.0),
    one_of(3, "a_model_gives_the_same_bits_resident_and_step_by_step", 1.0),
    one_of(3, "emulated: silero_vad", 1.0),
    one_of(3, "a_hang_shows_what_every_worker_does_and_the_next_request_works", 1.0),
    one_of(5, "engines_of_one_gpu_make_room_for_each_other", 1.0),
    one_of(3, "more_requests_than_entries_wait_for_their_turn", 1.0),
    one_of(5, "steps_of_the_host_come_between_stretches_of_the_kernels", 1.0),
    one_of(3, "workers_tell_the_time_of_requests_with_a_timeline", 1.0),
    one_of(3, "a_plan_beside_another_is_nearly_as_good_as_one_alone", 1.0),
    one_of(3, "a_skinny_product_is_cut_along_its_sum", 1.0),
    one_of(3, "random_attentions_of_few_queries_agree", 1.0),
    one_of(3, "random_rows_agree", 1.0),
    one_of(3, "the_same_bits_as_step_by_step_without_a_call_of_the_driver", 1.0),
    one_of(3, "weights_on_their_way_are_in_the_timeline_and_requests_take_turns", 1.0),
    one_of(3, "what_is_called_off_leaves_no_weight_behind", 1.0),
    one_of(3, "whatever_streams_step_by_step_runs_where_a_kernel_was_to_stay", 1.0),
    one_of(3, "rounds_of_loops_in_each_other_have_one_limit", 1.0),
    one_of(3, "other_models_import_or_say_what_is_missing", 1.0),
    one_of(3, "damaged_files_are_errors_never_panics", 1.0),
    one_of(3, "broken_plans_are_refused", 1.0),
    one_of(5, "a_gpu_that_was_left_out_is_reached_too", 1.0),
    one_of(3, "resident_modules_are_assembled", 1.0),
    one_of(3, "a_request_that_is_called_off_leaves_the_rest_out_and_the_next_one_is_right", 1.0),
    one_of(3, "broken_variants_are_found", 1.0),
    one_of(5, "requests_in_flight_give_the_bits_of_step_by_step", 1.0),
    one_of(5, "a_thousand_steps_open", 1.0),
    one_of(3, "nothing_moves_when_something_is_chosen", 1.0),
    one_of(3, "pages_open_without_errors_at_both_widths", 1.0),
    one_of(3, "report: a_model_injects_nothing", 1.0),
    one_of(3, "report: everything_works_by_keyboard", 1.0),
    one_of(3, "tables_sort_and_filter", 1.0),
    one_of(3, "a_thousand_steps_fit", 1.0),
    one_of(3, "fixed_cost_is_measured_beside_the_ping_pong", 1.0),
    one_of(3, "a_bundled_model_runs_profiles_and_plans_on_emulated_gpus", 1.0),
    one_of(5, "bench_tells_emulated_time_and_compares_the_two_ways", 1.0),
    one_of(5, "the_textbook_case_is_shown_both_ways", 1.0),
    one_of(3, "machines_are_planned_for_with_the_same_options", 1.0),
    one_of(3, "what_emit_writes_emulate_runs", 1.0),
    one_of(3, "a_profile_as_a_page_and_two_side_by_side", 1.0),
    one_of(3, "a_scenario_is_simulated_and_its_log_replays", 1.0),
    one_of(3, "models_under_load_are_supervised_and_the_log_replays", 1.0),
    one_of(3, "advice_is_ranked_and_holds", 1.0),
    one_of(5, "branches_count", 1.0),
    one_of(5, "one_model_over_machines", 1.0),
    one_of(5, "what_a_change_buys", 1.0),
    one_of(3, "damage_is_noticed_and_mended", 1.0),
    one_of(5, "random_shapes_leave_memory_flat", 1.0),
    one_of(3, "a_range_that_does_not_fit_is_not_needed", 1.0),
    one_of(5, "another_layout_is_tried_beside_traffic", 1.0),
    one_of(5, "another_device_where_the_file_of_one_promises_too_much", 1.0),
    one_of(3, "plans_in_virtual_time", 1.0),
    one_of(3, "cycles_beside_predictions", 1.0),
    one_of(5, "cycles_beside_predictions_elsewhere", 1.0),
    one_of(5, "cycles_of_products_in_parts_beside_predictions", 1.0),
    one_of(3, "captions_name_figures_that_are_there", 1.0),
    one_of(3, "figures_are_those_of_plan_calculators_emitter_and_emulator", 1.0),
    one_of(3, "the_same_walk_twice_has_the_same_bytes", 1.0),
    one_of(3, "a_cpus_lanes_are_drawn_onto_their_lines", 1.0),
    one_of(3, "every_scene_opens_without_errors_at_both_widths", 1.0),
    one_of(5, "it_plays_to_its_end", 1.0),
    one_of(3, "pictures_show_what_was_counted", 1.0),
    one_of(5, "reduced_motion_is_honoured", 1.0),
    one_of(5, "scenes_are_linked_to", 1.0),
    one_of(3, "walk: a_model_injects_nothing", 1.0),
    one_of(3, "walk: everything_works_by_keyboard", 1.0),
    one_of(3, "functions_are_shown_with_their_machine_code", 1.0),
];

/// The turn of each test of `all`, below its `of`: the longest first, each where the runs that it becomes part of take
/// least so far.
fn dealt(all: &[Turn]) -> Vec<u64> {
    let mut order: Vec<usize> = (0..all.len()).collect();
    order.sort_by(|&a, &b| all[b].seconds.total_cmp(&all[a].seconds));
    let (mut run, mut own) = ([0.0f64; SLOTS], vec![0; all.len()]);
    for i in order {
        let slots = |turn: u64| (turn as usize..SLOTS).step_by(all[i].of as usize);
        let fullest = |turn: u64| slots(turn).map(|s| run[s]).fold(0.0, f64::max);
        let by_load = (0..all[i].of).min_by(|&a, &b| fullest(a).total_cmp(&fullest(b)));
        own[i] = by_load.unwrap_or(0);
        slots(own[i]).for_each(|s| run[s] += all[i].seconds);
    }
    own
}

/// Whether the long test `name` is of this run. Those that are left out are listed at the end of the run.
///
/// # Panics
/// Where the list of this module does not have it.
pub fn turn(name: &str) -> bool {
    let at = TURNS.iter().position(|t| t.name == name);
    let at =
        at.unwrap_or_else(|| panic!("{name} takes turns, but is not listed in testing's turns.rs"));
    let (own, of) = (dealt(TURNS)[at], TURNS[at].of);
    let now = Share::of_turns(of);
    if now == Share::ALL || now.number == own {
        return true;
    }
    let why = format!("takes turns: it is in share {own} of {of}");
    println!("left out: {name}: {why}");
    note(name, &why);
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_take_the_same_time() {
        let (own, mut run) = (dealt(TURNS), [0.0; SLOTS]);
        for (t, turn) in TURNS.iter().zip(own) {
            assert!(
                turn < t.of && SLOTS.is_multiple_of(t.of as usize),
                "{}",
                t.name
            );
            assert!(
                TURNS.iter().filter(|u| u.name == t.name).count() == 1,
                "{}",
                t.name
            );
            (turn as usize..SLOTS)
                .step_by(t.of as usize)
                .for_each(|s| run[s] += t.seconds);
        }
        let (least, most) = run
            .iter()
            .fold((f64::MAX, 0.0f64), |(l, m), &r| (l.min(r), m.max(r)));
        assert!(most < 1.1 * least, "{run:?}");
    }
}
