"""Pictures of chosen inputs: the right pixels are white, and the film has all its frames."""

import io

import numpy as np
from PIL import Image

from pbcs_jax.report.figures import to_png
from pbcs_jax.report.inputs import chosen_inputs, input_probabilities, probability_film
from pbcs_jax.report.page import save_all, write_report


def test_chosen_pixels_are_white_and_black_on_ink():
    image = np.zeros((1, 4, 4, 1))
    image[0, :, 2:] = 1.0
    mask = np.zeros((4, 4), bool)
    mask[1, 1] = mask[2, 2] = True
    figure = chosen_inputs({"pbcs": mask}, image)
    (axes,) = figure.axes
    shown = axes.images[0].get_array()
    assert np.all(shown[1, 1] == 1) and np.all(shown[2, 2] == 0)
    others = ~mask
    assert np.all((shown[others] > 0) & (shown[others] < 1))


def test_every_method_has_a_row_and_every_class_a_picture():
    images = np.random.default_rng(0).random((10, 28, 28, 1))
    masks = {name: np.zeros((28, 28, 1), bool) for name in ("pbcs", "f_score")}
    figure = chosen_inputs(masks, images)
    assert len(figure.axes) == 20
    assert to_png(figure).startswith(b"\x89PNG")


def test_the_film_has_a_frame_a_step_and_the_last_one_stays():
    maps = np.linspace(0, 1, 3)[:, None, None] * np.ones((3, 7, 7))
    film = Image.open(io.BytesIO(probability_film([10, 20, 30], maps).gif))
    assert film.format == "GIF" and film.n_frames == 3
    centres, durations = [], []
    for frame in range(3):
        film.seek(frame)
        centres.append(film.convert("L").getpixel((film.width // 2, film.height // 2)))
        durations.append(film.info["duration"])
    assert np.abs(np.array(centres) - [0, 128, 255]).max() <= 2
    assert durations[-1] > 5 * durations[0]


def test_bars_of_a_table_mark_the_chosen():
    figure = input_probabilities([0.1, 0.9, 1.0, 0.0], [1, 2])
    (axes,) = figure.axes
    heights = [bar.get_height() for bar in axes.patches]
    colours = {i: bar.get_facecolor() for i, bar in enumerate(axes.patches)}
    assert heights == [0.1, 0.9, 1.0, 0.0]
    assert colours[1] == colours[2] != colours[0] == colours[3]


def test_a_film_goes_into_the_page_and_into_a_file(tmp_path):
    film = probability_film([1, 2], np.zeros((2, 3, 3)))
    entries = [("Over time", "what moves", film)]
    write_report(tmp_path / "page.html", "t", [], entries)
    assert "data:image/gif;base64," in (tmp_path / "page.html").read_text()
    save_all(entries, tmp_path / "figures")
    assert (tmp_path / "figures" / "over_time.gif").read_bytes() == film.gif
