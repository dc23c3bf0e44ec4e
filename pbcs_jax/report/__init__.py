"""What a run leaves behind for people: tables, figures, report.html, and files written whole."""

from pbcs_jax.report.figures import (
    accuracy_by_method,
    class_counts,
    contact_sheet,
    outer_loss,
    probability_evolution,
    save,
    sweep_figure,
)
from pbcs_jax.report.files import write_atomically, write_json, write_npz
from pbcs_jax.report.page import write_report
from pbcs_jax.report.tables import markdown_table, method_table, sweep_table, terminal_table

__all__ = [
    "accuracy_by_method",
    "class_counts",
    "contact_sheet",
    "markdown_table",
    "method_table",
    "outer_loss",
    "probability_evolution",
    "save",
    "sweep_figure",
    "sweep_table",
    "terminal_table",
    "write_atomically",
    "write_json",
    "write_npz",
    "write_report",
]
