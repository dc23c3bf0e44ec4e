"""What a run leaves behind for people: tables, figures, report.html, and files written whole."""

from pbcs_jax.report.figures import (
    accuracy_by_method,
    class_counts,
    contact_sheet,
    outer_loss,
    probability_evolution,
    sweep_figure,
)
from pbcs_jax.report.files import write_atomically, write_json, write_npz
from pbcs_jax.report.inputs import chosen_inputs, input_probabilities, probability_film
from pbcs_jax.report.page import Entry, save_all, write_report
from pbcs_jax.report.tables import Rows, markdown_table, method_table, sweep_table, terminal_table

__all__ = [
    "Entry",
    "Rows",
    "accuracy_by_method",
    "chosen_inputs",
    "class_counts",
    "contact_sheet",
    "input_probabilities",
    "markdown_table",
    "method_table",
    "outer_loss",
    "probability_evolution",
    "probability_film",
    "save_all",
    "sweep_figure",
    "sweep_table",
    "terminal_table",
    "write_atomically",
    "write_json",
    "write_npz",
    "write_report",
]
