"""``sluice top``: the tables of a running proxy on a terminal, again every two seconds.

The proxy sorts, filters and cuts: only the rows on the screen are asked for.
"""

import asyncio
from typing import Any, ClassVar, Final

from rich.text import Text
from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.events import Click
from textual.widgets import Footer, Input, Static

from proxy.live.api import Api, ApiError, Item, instance_errors
from proxy.live.tables import ALL, THROTTLED, Column, Table, as_listed, plain

_EVERY_S: Final = 2.0
_LEAST_NAME: Final = 10
"""The width of names on a narrow terminal."""


class _View:
    def __init__(self, table: Table) -> None:
        self.table = table
        self.sort = table.sort
        self.q = ""
        self.offset = 0

    @property
    def field(self) -> str:
        return self.sort.removeprefix("-")

    def reverse(self) -> None:
        self.sort = self.field if self.sort.startswith("-") else f"-{self.sort}"


class Top(App[None]):
    ENABLE_COMMAND_PALETTE = False
    AUTO_FOCUS = None
    CSS = """
    Screen { layout: vertical; }
    #about { text-style: bold; }
    #about, #tables, Input { height: 1; }
    #status { height: auto; max-height: 3; }
    Input { display: none; border: none; padding: 0; }
    #rows { height: 1fr; }
    #row { height: 3; color: $text-muted; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        *(Binding(str(number), f"table({number - 1})", each.name, show=False) for number, each in enumerate(ALL, 1)),
        Binding("tab", "next_table", "Next table", priority=True),
        Binding("s", "sort", "Sort by next"),
        Binding("r", "reverse", "Reverse"),
        Binding("slash", "filter", "Filter"),
        Binding("escape", "no_filter", "No filter", show=False),
        Binding("down", "move(1)", "Next row", show=False),
        Binding("up", "move(-1)", "Previous row", show=False),
        Binding("pagedown", "page(1)", "Next page", show=False, priority=True),
        Binding("pageup", "page(-1)", "Previous page", show=False, priority=True),
        Binding("q", "quit", "Quit"),
    ]

    def __init__(self, api: Api) -> None:
        super().__init__()
        self._api = api
        self._views = [_View(as_listed(each, api.all_instances)) for each in ALL]
        self._view = self._views[0]
        self._columns: list[tuple[Column, int]] = []
        self._items: list[Item] = []
        self._total = 0
        self._cursor = 0

    def compose(self) -> ComposeResult:
        yield Static("connecting ...", id="about", markup=False)
        yield Static(id="tables", markup=False)
        yield Static(id="rows", markup=False)
        yield Static(id="row", markup=False)
        yield Static(id="status", markup=False)
        yield Input(placeholder="users and client-ids that contain ...")
        yield Footer()

    def on_mount(self) -> None:
        self.set_interval(_EVERY_S, self._tick)

    def on_resize(self) -> None:
        self._reload()

    # -------------------------------------------------------------------------------------------------------- keys

    def action_table(self, number: int) -> None:
        self._view = self._views[number]
        self._hide_filter()
        self._reload()

    def action_next_table(self) -> None:
        self.action_table((self._views.index(self._view) + 1) % len(self._views))

    def action_sort(self) -> None:
        fields = self._sortable
        self._sort_by(fields[(fields.index(self._view.field) + 1) % len(fields) if self._view.field in fields else 0])

    def action_reverse(self) -> None:
        self._view.reverse()
        self._reload()

    def action_page(self, step: int) -> None:
        offset = self._view.offset + step * self._page
        if offset < max(self._total, 1):
            self._view.offset = max(offset, 0)
            self._reload()

    def action_filter(self) -> None:
        if self._view.table.has_clients:
            line = self.query_one(Input)
            line.display = True
            line.value = self._view.q
            line.focus()

    def action_no_filter(self) -> None:
        self.query_one(Input).clear()
        self.on_input_submitted()

    def on_input_submitted(self) -> None:
        self._view.q, self._view.offset = self.query_one(Input).value, 0
        self._hide_filter()
        self._reload()

    def _hide_filter(self) -> None:
        self.query_one(Input).display = False
        self.set_focus(None)

    def on_click(self, click: Click) -> None:
        """Sort by the column, or select the row, that was clicked on."""
        if click.widget is not self.query_one("#rows"):
            return
        if click.y:
            self._select(click.y - 1)
            return
        right = 0
        for column, width in self._columns:
            right += width + 1
            if click.x < right:
                self._sort_by(column.field)
                return

    def action_move(self, step: int) -> None:
        self._select(self._cursor + step)

    def _select(self, number: int) -> None:
        self._cursor = max(min(number, len(self._items) - 1), 0)
        self._draw()

    def _sort_by(self, field: str) -> None:
        """Sort by a field, numbers from the largest down; by the field that it is sorted by, the other way round."""
        view = self._view
        if field not in self._sortable:
            return
        if view.field == field:
            view.reverse()
        else:
            is_number = any(column.field == field and column.is_right for column, _ in self._columns)
            view.sort = f"-{field}" if is_number else field
        view.offset = 0
        self._reload()

    @property
    def _sortable(self) -> list[str]:
        return [column.field for column, _ in self._columns if column.field != "peers"]

    # ----------------------------------------------------------------------------------------------------- refreshing

    @property
    def _page(self) -> int:
        height: int = self.query_one("#rows").size.height
        return max(height - 1, 1)

    def _tick(self) -> None:
        if not self.workers:  # the answer before has come
            self._reload()

    def _reload(self) -> None:
        self.run_worker(self._refresh(), exclusive=True)

    async def _refresh(self) -> None:
        if not self.query("#rows"):  # it is ending
            return
        try:
            answers = await asyncio.to_thread(self._ask, self._view, self._page)
        except ApiError as error:
            self.query_one("#status", Static).update(Text(plain(error.message), "bold red"))
        else:
            self._show(*answers)

    def _ask(self, view: _View, page: int) -> tuple[Item, int, Any]:
        """Return the instance, the number of throttled, and the rows on the screen. Raises ApiError."""
        rows = self._api.list(view.table.name, sort=view.sort, q=view.q or None, offset=view.offset, limit=page)
        throttled = rows if view.table.name == THROTTLED.name else self._api.list(THROTTLED.name, limit=1)
        return self._api.get("instance"), throttled["total"], rows

    def _show(self, about: Item, throttled: int, rows: Any) -> None:
        view = self._view
        state = "ready" if about["is_ready"] else f"not ready: {', '.join(about['reasons'])}"
        names = [f"sluice {about['version']}", about["instance"], about["cluster"], about["mode"], state]
        self.query_one("#about", Static).update("  ".join(plain(each) for each in names if each))
        tabs = Text()
        for number, each in enumerate(self._views, 1):
            count = f" {throttled}" if each.table.name == THROTTLED.name else ""
            tabs.append(f" {number} {each.table.name}{count} ", "reverse" if each is view else "")
        self.query_one("#tables", Static).update(tabs)
        self._items, self._total = rows["items"], rows["total"]
        self._columns = _fitting(view.table, self.size.width)
        self._select(self._cursor)
        first, last = view.offset + bool(self._items), view.offset + len(self._items)
        title = next((each.title for each in view.table.columns if each.field == view.field), view.field)
        order = f"by {title}{', largest first' if view.sort.startswith('-') else ''}"
        said = [f"{first}-{last} of {self._total} {order}", f"{rows['as_of'][11:19]} UTC"]
        if view.q:
            said.append(f"filter: {plain(view.q)} (Esc: none)")
        self.query_one("#status", Static).update("  ".join([*said, *instance_errors(rows)]))

    def _draw(self) -> None:
        """Draw the rows, and below them those fields of the selected one that do not fit, with its names in full."""
        text = Text(no_wrap=True)
        for column, width in self._columns:
            style = "bold underline" if column.field == self._view.field else "bold"
            text.append(_cell(column.title, column, width), style).append(" ")
        for number, item in enumerate(self._items):
            line = " ".join(_cell(column.text(item), column, width) for column, width in self._columns)
            text.append("\n").append(line, "reverse" if number == self._cursor else "")
        self.query_one("#rows", Static).update(text)
        fitting = {column.field for column, _ in self._columns if column.width}
        others = [each for each in self._view.table.columns if each.field not in fitting]
        chosen = self._items[self._cursor : self._cursor + 1]
        said = "  ".join(f"{each.title} {each.text(item)}" for item in chosen for each in others)
        self.query_one("#row", Static).update(said)


def _fitting(table: Table, width: int) -> list[tuple[Column, int]]:
    """Return the first columns that fit into ``width``, and how wide each is."""
    shown: list[Column] = []
    left = width + 1  # the last column needs no space after it
    for column in table.columns:
        taken = (column.width or _LEAST_NAME) + 1
        if taken > left:
            break
        left -= taken
        shown.append(column)
    names = sum(not column.width for column in shown)
    return [(column, column.width or _LEAST_NAME + left // names) for column in shown]


def _cell(said: str, column: Column, width: int) -> str:
    """Return the text of a cell, as wide as it takes on the terminal."""
    text = Text(said, overflow="ellipsis")
    text.align("right" if column.is_right else "left", width)
    return text.plain
