//! Long tests that take turns: every commit runs some of them, and a few commits run all.
//!
//! Which turn a test has follows from what all of them take, so that no commit's run is much longer than another's.

use crate::Share;
use crate::skipped::note;
use std::cmp::Ordering;

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
const SLOTS: usize = 30;

const fn one_of(of: u64, name: &'static str, seconds: f64) -> Turn {
    Turn { name, of, seconds }
}

/// All of them. A new one comes with the seconds that it was measured to take.
#[rustfmt::skip]
const TURNS: &[Turn] = &[
    one_of(6, "tasks_that_ctas_walk_agree_with_the_reference_however_they_are_launched", 4.1),
    one_of(6, "clusters_agree_with_the_reference_however_they_are_launched", 1.7),
    one_of(6, "emulated: parts_in_clusters_agree_with_the_reference", 6.0),
    one_of(6, "simt: parts_in_clusters_agree_with_the_reference", 5.4),
    one_of(6, "parts_in_clusters_are_assembled", 3.0),
    one_of(10, "products_of_parts_that_lie_as_images_give_what_multiply_adds_give", 7.4),
    one_of(5, "webgpu: requests_are_called_off_between_submissions", 41.3),
    one_of(5, "webgpu: ppocr_cls", 22.5),
    one_of(5, "webgpu: silero_vad", 31.4),
    one_of(6, "emulated: matrix_instructions_agree_with_the_reference", 4.9),
    one_of(6, "simt: products_in_parts_give_what_multiply_adds_give", 5.1),
    one_of(6, "every_family_gives_the_same_bits_inside_a_resident_kernel", 6.7),
    one_of(6, "a_program_in_c_does_what_the_header_says", 4.6),
    one_of(6, "tables_keep_to_the_width_they_are_given", 5.6),
    one_of(6, "attention_by_warpgroups_is_assembled", 4.4),
    one_of(6, "matrix_instructions_and_copies_keep_to_the_rules", 2.2),
    one_of(6, "shuffles_give_the_same", 0.4),
    one_of(3, "webgpu: steps_of_more_tasks_than_a_submission_takes_are_cut", 1.6),
    one_of(5, "webgpu: every_family_agrees_with_the_reference", 34.0),
    one_of(10, "what_is_timed_is_there", 6.8),
    one_of(10, "an_emulated_gpu_is_checked_and_described", 12.9),
    one_of(6, "products_are_timed_stage_by_stage", 2.3),
    one_of(10, "the_suite_takes_the_time_there_is", 21.5),
    one_of(6, "streams_come_and_go_on_a_gpu", 2.2),
    one_of(6, "broken_plans_of_the_planner_are_refused", 2.2),
    one_of(10, "a_kernel_that_stays_leaves_the_rest_out", 22.1),
    one_of(6, "step_by_step_nothing_is_launched_after_the_call", 1.6),
    one_of(6, "the_first_request_of_a_kernel_can_be_called_off", 1.9),
    one_of(10, "the_host_is_a_few_launches_ahead_of_the_gpu", 3.3),
    one_of(6, "weights_on_their_way_do_not_meet_those_of_the_next_request", 1.7),
    one_of(10, "every_kernel_of_these_models_is_what_it_says", 4.4),
    one_of(10, "both_devices_run_their_steps", 4.7),
    one_of(10, "no_cut_is_predicted_to_take_longer_than_a_device_alone", 2.9),
    one_of(10, "steps_go_to_the_other_device_beside_traffic", 10.9),
    one_of(10, "values_of_many_pieces_come_and_go_whole", 2.8),
    one_of(10, "any_function_follows_a_product_on_tensor_cores", 6.0),
    one_of(10, "a_thousand_swaps_under_load", 2.9),
    one_of(6, "a_request_that_is_called_off_leaves_the_graphs_behind_it_out", 1.4),
    one_of(6, "weights_are_copied_before_the_kernels_before_are_over", 2.4),
    one_of(10, "host_steps_are_few_and_known", 4.3),
    one_of(10, "sizes_may_change_from_request_to_request", 9.5),
    one_of(6, "small_products_in_a_row_are_part_of_one_launch", 2.0),
    one_of(6, "what_a_convolution_of_1x1_reads_is_made_by_it", 2.0),
    one_of(6, "what_one_product_reads_is_made_by_it", 2.0),
    one_of(10, "they_give_the_bits_of_launches_of_their_own", 7.7),
    one_of(10, "one_row_is_multiplied_by_warpgroups", 14.0),
    one_of(10, "kernels_of_models_and_their_plans_are_read_back", 13.6),
    one_of(6, "kernels_of_random_plans_are_read_back", 0.5),
    one_of(10, "warps_that_copy_are_assembled_to_hoppers_instructions", 4.6),
    one_of(10, "a_causal_mask_halves_what_is_gone_through", 5.1),
    one_of(10, "a_last_piece_that_is_a_part_takes_little_longer_than_a_whole_one", 4.0),
    one_of(10, "attention_is_planned_for_warpgroups", 7.1),
    one_of(10, "emulated: the_emulator_runs_the_text", 3.6),
    one_of(10, "f32_copies_ahead_and_the_emulator_runs_the_text", 5.2),
    one_of(10, "ptxas_assembles_without_spills", 15.9),
    one_of(6, "products_of_many_shapes_are_assembled_without_spills", 9.0),
    one_of(6, "reference_evaluates_the_tile_programs", 2.0),
    one_of(10, "one_thread_and_several_plan_the_same", 4.2),
    one_of(10, "models_of_many_nodes_are_planned", 3.7),
    one_of(6, "matrix_units_multiply_as_exactly_as_was_asked_for", 1.2),
    one_of(10, "arenas_are_little_more_than_what_lives_at_once", 5.6),
    one_of(6, "every_model_is_planned_for_gpus", 0.1),
    one_of(10, "seeds_are_sound_and_damage_is_harmless", 2.5),
    one_of(10, "a_gru_of_one_position_has_a_schedule_on_gpus", 6.8),
    one_of(10, "tile_programs_agree_with_the_oracle", 6.7),
    one_of(6, "a_model_gives_the_same_bits_resident_and_step_by_step", 1.6),
    one_of(6, "emulated: silero_vad", 2.4),
    one_of(6, "a_hang_shows_what_every_worker_does_and_the_next_request_works", 1.7),
    one_of(10, "engines_of_one_gpu_make_room_for_each_other", 10.7),
    one_of(6, "more_requests_than_entries_wait_for_their_turn", 1.9),
    one_of(10, "steps_of_the_host_come_between_stretches_of_the_kernels", 3.9),
    one_of(6, "workers_tell_the_time_of_requests_with_a_timeline", 1.3),
    one_of(10, "a_plan_beside_another_is_nearly_as_good_as_one_alone", 3.2),
    one_of(10, "a_skinny_product_is_cut_along_its_sum", 3.4),
    one_of(10, "random_attentions_of_few_queries_agree", 4.2),
    one_of(6, "random_rows_agree", 0.5),
    one_of(10, "the_same_bits_as_step_by_step_without_a_call_of_the_driver", 5.2),
    one_of(10, "the_same_bits_with_one_step_of_the_host", 5.2),
    one_of(10, "the_same_bits_with_two_steps_of_the_host", 5.2),
    one_of(10, "weights_on_their_way_are_in_the_timeline_and_requests_take_turns", 2.5),
    one_of(10, "what_is_called_off_leaves_no_weight_behind", 3.6),
    one_of(10, "whatever_streams_step_by_step_runs_where_a_kernel_was_to_stay", 8.7),
    one_of(10, "rounds_of_loops_in_each_other_have_one_limit", 2.8),
    one_of(6, "other_models_import_or_say_what_is_missing", 2.4),
    one_of(6, "damaged_files_are_errors_never_panics", 1.8),
    one_of(6, "broken_plans_are_refused", 1.5),
    one_of(10, "a_gpu_that_was_left_out_is_reached_too", 8.8),
    one_of(10, "resident_modules_are_assembled", 12.0),
    one_of(10, "a_request_that_is_called_off_leaves_the_rest_out_and_the_next_one_is_right", 2.5),
    one_of(10, "broken_variants_are_found", 8.7),
    one_of(6, "requests_in_flight_give_the_bits_of_step_by_step", 1.9),
    one_of(10, "a_thousand_steps_open", 3.6),
    one_of(10, "nothing_moves_when_something_is_chosen", 2.7),
    one_of(10, "pages_open_without_errors_at_both_widths", 5.3),
    one_of(10, "report: a_model_injects_nothing", 2.6),
    one_of(6, "report: everything_works_by_keyboard", 1.5),
    one_of(6, "tables_sort_and_filter", 1.4),
    one_of(6, "a_thousand_steps_fit", 0.8),
    one_of(10, "fixed_cost_is_measured_beside_the_ping_pong", 3.6),
    one_of(6, "a_bundled_model_runs_profiles_and_plans_on_emulated_gpus", 1.0),
    one_of(10, "bench_tells_emulated_time_and_compares_the_two_ways", 2.8),
    one_of(10, "the_textbook_case_is_shown_both_ways", 2.8),
    one_of(6, "machines_are_planned_for_with_the_same_options", 0.8),
    one_of(6, "what_emit_writes_emulate_runs", 1.1),
    one_of(6, "a_profile_as_a_page_and_two_side_by_side", 1.1),
    one_of(6, "a_scenario_is_simulated_and_its_log_replays", 2.4),
    one_of(6, "models_under_load_are_supervised_and_the_log_replays", 1.7),
    one_of(6, "advice_is_ranked_and_holds", 0.8),
    one_of(6, "branches_count", 1.2),
    one_of(6, "one_model_over_machines", 1.0),
    one_of(10, "what_a_change_buys", 5.5),
    one_of(6, "damage_is_noticed_and_mended", 1.9),
    one_of(10, "random_shapes_leave_memory_flat", 3.1),
    one_of(10, "a_range_that_does_not_fit_is_not_needed", 9.1),
    one_of(6, "another_layout_is_tried_beside_traffic", 0.3),
    one_of(10, "another_device_where_the_file_of_one_promises_too_much", 20.6),
    one_of(10, "plans_in_virtual_time", 11.3),
    one_of(10, "cycles_beside_predictions", 3.8),
    one_of(10, "cycles_beside_predictions_elsewhere", 8.3),
    one_of(10, "cycles_of_products_in_parts_beside_predictions", 7.1),
    one_of(10, "captions_name_figures_that_are_there", 3.6),
    one_of(10, "figures_are_those_of_plan_calculators_emitter_and_emulator", 3.5),
    one_of(6, "the_same_walk_twice_has_the_same_bytes", 0.7),
    one_of(10, "a_cpus_lanes_are_drawn_onto_their_lines", 3.4),
    one_of(10, "every_scene_opens_without_errors_at_both_widths", 7.0),
    one_of(6, "it_plays_to_its_end", 1.9),
    one_of(6, "pictures_show_what_was_counted", 1.6),
    one_of(10, "reduced_motion_is_honoured", 2.9),
    one_of(10, "scenes_are_linked_to", 4.5),
    one_of(6, "walk: a_model_injects_nothing", 1.9),
    one_of(6, "walk: everything_works_by_keyboard", 1.5),
    one_of(6, "functions_are_shown_with_their_machine_code", 1.5),
];

impl Turn {
    /// Whether everyday builds have it too, which are built without wgpu.
    fn everyday(&self) -> bool {
        !self.name.starts_with("webgpu: ")
    }
}

/// The turn of each test of `all`, below its `of`: those of everyday builds first, the longest first, each where the
/// runs that it becomes part of take least so far.
fn dealt(all: &[Turn]) -> Vec<u64> {
    let mut order: Vec<usize> = (0..all.len()).collect();
    let last = |i: usize| (!all[i].everyday(), -all[i].seconds);
    order.sort_by(|&a, &b| last(a).partial_cmp(&last(b)).unwrap_or(Ordering::Equal));
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
            let named = TURNS.iter().filter(|u| u.name == t.name);
            assert_eq!(named.count(), 1, "{}", t.name);
            if t.everyday() {
                (turn as usize..SLOTS)
                    .step_by(t.of as usize)
                    .for_each(|s| run[s] += t.seconds);
            }
        }
        let (least, most) = run
            .iter()
            .fold((f64::MAX, 0.0f64), |(l, m), &r| (l.min(r), m.max(r)));
        assert!(most < 1.1 * least, "{run:?}");
    }
}
