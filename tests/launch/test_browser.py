"""The pages in a real browser, where there is one: Debian's chromium and chromium-driver."""

import shutil
from pathlib import Path
from urllib.parse import urlparse
from urllib.request import url2pathname

import numpy as np
import pytest
from command_line import launch
from selenium import webdriver
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.support.ui import Select

from pbcs_jax.report.book import write_book
from pbcs_jax.report.page import write_report
from pbcs_jax.report.tables import column_table
from pbcs_jax.result import Result, Suspects

CHROMIUM, DRIVER = shutil.which("chromium"), shutil.which("chromedriver")
pytestmark = pytest.mark.skipif(
    not (CHROMIUM and DRIVER), reason="chromium and chromium-driver are not installed"
)
FLAGS = (
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
)


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    options = webdriver.ChromeOptions()
    options.binary_location = CHROMIUM
    for flag in (*FLAGS, f"--user-data-dir={tmp_path_factory.mktemp('profile')}"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    driver = webdriver.Chrome(options, webdriver.ChromeService(DRIVER))
    yield driver
    driver.quit()


@pytest.fixture
def quiet(browser):
    """The browser, in whose console nothing may stand at the end."""
    yield browser
    assert not browser.get_log("browser")


@pytest.fixture(scope="module")
def sweep(tmp_path_factory):
    workdir = tmp_path_factory.mktemp("browser") / "sweep"
    points = "('coreset_size=12 noise.rate=0.4', 'coreset_size=20 noise.rate=0.5')"
    flags = ("--config=configs/mnist_noise.py:smoke", f"--config.sweep.points={points}")
    done = launch(*flags, f"--workdir={workdir}")
    assert done.returncode == 0, done.stderr
    return workdir


def table(browser, heading):
    return browser.find_element(By.XPATH, f"//section[h2='{heading}']//table")


def header(browser, heading, column):
    return table(browser, heading).find_element(By.XPATH, f".//th[normalize-space()='{column}']")


def column(browser, heading, name):
    """The texts of a column, from the top."""
    script = """
        const [table, name] = arguments;
        const column = [...table.tHead.rows[0].cells].findIndex(th => th.innerText.includes(name));
        return [...table.tBodies[0].rows].map(row => row.cells[column].textContent);"""
    return browser.execute_script(script, table(browser, heading), name)


def file_of(link):
    return Path(url2pathname(urlparse(link).path))


def test_the_chosen_are_sorted_by_a_click_on_a_header(quiet, sweep):
    (page,) = sweep.glob("runs/*size=20*/*/report.html")
    quiet.get(page.as_uri())
    heading = "Table of the chosen samples"
    for name in ("index", "label", "probability"):
        head = header(quiet, heading, name)
        before = [float(text) for text in column(quiet, heading, name)]
        assert len(before) == 20
        head.find_element(By.TAG_NAME, "button").click()
        assert [float(text) for text in column(quiet, heading, name)] == sorted(before)
        assert head.get_attribute("aria-sort") == "ascending"
        head.find_element(By.TAG_NAME, "button").click()
        assert [float(text) for text in column(quiet, heading, name)] == sorted(before)[::-1]
        assert head.get_attribute("aria-sort") == "descending"
        assert len(quiet.find_elements(By.CSS_SELECTOR, "th[aria-sort]")) == 1


def test_links_lead_to_files(quiet, sweep):
    quiet.get((sweep / "report.html").as_uri())
    links = quiet.find_elements(By.XPATH, "//section[h2='Runs']//a")
    assert len(links) == 2
    links[1].click()
    assert quiet.title == "Coreset of mnist" and "size%3D20" in quiet.current_url
    facts = [a.get_attribute("href") for a in quiet.find_elements(By.CSS_SELECTOR, "dd a")]
    assert {file_of(link).name for link in facts} == {"coreset.npz", "metrics.jsonl", "config.json"}
    assert all(file_of(link).exists() for link in facts)
    with np.load(next(file_of(link) for link in facts if link.endswith(".npz"))) as coreset:
        assert coreset["indices"].shape == (20,)


def test_numbers_sort_as_numbers_and_what_is_missing_stays_last(quiet, tmp_path):
    columns = {
        "number": ["1,234.6", "\N{EN DASH}", "-5", "1e-05", "93.45 ± 0.20"],
        "name": ["class 10", "class 2", "\N{EN DASH}", "b", "a"],
    }
    write_report(tmp_path / "page.html", "t", [], [("Mixed", "", column_table(columns))])
    quiet.get((tmp_path / "page.html").as_uri())
    button = header(quiet, "Mixed", "number").find_element(By.TAG_NAME, "button")
    button.send_keys(Keys.ENTER)  # no mouse is needed
    numbers = ["-5", "1e-05", "93.45 ± 0.20", "1,234.6"]
    assert column(quiet, "Mixed", "number") == [*numbers, "\N{EN DASH}"]
    button.send_keys(Keys.SPACE)
    assert column(quiet, "Mixed", "number") == [*numbers[::-1], "\N{EN DASH}"]
    header(quiet, "Mixed", "name").find_element(By.TAG_NAME, "button").click()
    assert column(quiet, "Mixed", "name") == ["a", "b", "class 2", "class 10", "\N{EN DASH}"]


def test_the_page_of_a_result_shows_its_suspects(quiet, tmp_path):
    rng = np.random.default_rng(0)
    result = Result(
        np.array([1, 11, 2]),
        rng.uniform(size=30),
        {"outer_loss": np.ones(3), "histogram": np.ones((3, 20))},
        labels=np.arange(30) % 3,
        pictures=rng.uniform(size=(30, 8, 8, 3)),
        find_suspects=lambda: Suspects(np.arange(12), np.linspace(1, 0, 12), np.ones(12, int)),
    )
    result.to_html(tmp_path / "page.html")
    quiet.get((tmp_path / "page.html").as_uri())
    pictures = table(quiet, "Suspects").find_elements(By.TAG_NAME, "img")
    widths = [quiet.execute_script("return arguments[0].naturalWidth", p) for p in pictures]
    assert widths == [8] * 12
    assert not header(quiet, "Suspects", "picture").find_elements(By.TAG_NAME, "button")
    header(quiet, "Suspects", "index").find_element(By.TAG_NAME, "button").click()
    header(quiet, "Suspects", "index").find_element(By.TAG_NAME, "button").click()
    assert column(quiet, "Suspects", "rank") == [str(rank) for rank in range(12, 0, -1)]


@pytest.mark.parametrize("width", [400, 1200])
def test_nothing_is_wider_than_the_window(quiet, sweep, width):
    for page in (sweep / "report.html", *sweep.glob("runs/*/*/report.html")):
        quiet.set_window_size(width, 900)
        quiet.get(page.as_uri())
        wide = "return document.documentElement.scrollWidth - document.documentElement.clientWidth"
        assert quiet.execute_script(wide) == 0


def test_the_book_is_searched_and_compares_two_runs(quiet, sweep):
    book = sweep.parent / "book.html"
    write_book(sweep.parent, book)
    quiet.get(book.as_uri())
    search = quiet.find_element(By.ID, "search")

    def shown():
        found = quiet.find_elements(By.CSS_SELECTOR, "#runs .run:not([hidden])")
        return [part.get_attribute("id") for part in found]

    assert shown() == ["run-0", "run-1", "run-2"]
    search.send_keys("NOISE.rate=0.5 size=20,noise")
    assert shown() == ["run-2"]
    assert quiet.find_element(By.ID, "hits").text == "0 rows, 1 run"
    search.clear()
    search.send_keys("permmnist 74.26")
    assert quiet.find_element(By.ID, "hits").text == "1 row, 0 runs"
    contents = quiet.find_elements(By.CSS_SELECTOR, ".contents li:not([hidden])")
    assert [line.text for line in contents] == ["Table 1"]

    for side, name in (("left", "size=12"), ("right", "size=20")):
        choice = Select(quiet.find_element(By.ID, side))
        choice.select_by_visible_text(next(o.text for o in choice.options if name in o.text))
    cells = quiet.find_elements(By.CSS_SELECTOR, "#differences table:first-of-type td:first-child")
    differing = [cell.text for cell in cells]
    assert "coreset_size" in differing and "noise.rate" in differing and "pbcs" in differing
    for side, name in (("left", "size=12"), ("right", "size=20")):
        copy = quiet.find_element(By.ID, f"{side}-side")
        assert name in copy.text and copy.find_elements(By.TAG_NAME, "img")

    quiet.get(f"{book.as_uri()}#run-2")
    assert quiet.find_element(By.CSS_SELECTOR, "#run-2 details").get_attribute("open")
    for width in (400, 1200):
        quiet.set_window_size(width, 900)
        wide = "return document.documentElement.scrollWidth - document.documentElement.clientWidth"
        assert quiet.execute_script(wide) == 0
