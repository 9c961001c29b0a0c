// Tables that sort by a click on a heading, and a filter for long ones.

export function installTables(): void {
  document.querySelectorAll<HTMLTableElement>('table.sortable').forEach(makeSortable);
  document.querySelectorAll<HTMLInputElement>('input.filter').forEach((input) => {
    const table = document.getElementById(input.dataset.table ?? '') as HTMLTableElement | null;
    if (table) input.addEventListener('input', () => filter(table, input.value));
  });
  document.querySelectorAll<HTMLButtonElement>('button.unfold').forEach((control) => {
    const table = document.getElementById(control.dataset.table ?? '');
    control.hidden = false;
    table?.classList.add('collapsed');
    control.addEventListener('click', () => {
      table?.classList.remove('collapsed');
      control.hidden = true;
    });
  });
}

function makeSortable(table: HTMLTableElement): void {
  table.querySelectorAll<HTMLTableCellElement>('thead th').forEach((heading, column) => {
    const control = document.createElement('button');
    control.type = 'button';
    control.textContent = heading.textContent;
    heading.textContent = '';
    heading.append(control);
    control.addEventListener('click', () => {
      const ascending = heading.getAttribute('aria-sort') !== 'ascending';
      table.querySelectorAll('thead th').forEach((other) => other.removeAttribute('aria-sort'));
      heading.setAttribute('aria-sort', ascending ? 'ascending' : 'descending');
      sort(table, column, ascending);
    });
  });
}

/** Cells compare by their value where they have one; what has none comes last either way. */
function sort(table: HTMLTableElement, column: number, ascending: boolean): void {
  const body = table.tBodies[0];
  const key = (row: HTMLTableRowElement): number | string | undefined => {
    const cell = row.cells[column];
    const value = cell?.dataset.value;
    if (value === undefined) return cell?.textContent?.trim().toLowerCase();
    if (value === '') return undefined;
    return value === 'inf' ? Infinity : Number(value);
  };
  const rows = [...body.rows].map((row, index) => ({ row, index, key: key(row) }));
  rows.sort((a, b) => {
    if (a.key === undefined || b.key === undefined) {
      return Number(a.key === undefined) - Number(b.key === undefined) || a.index - b.index;
    }
    const order =
      typeof a.key === 'number' && typeof b.key === 'number'
        ? a.key - b.key
        : String(a.key).localeCompare(String(b.key), 'en', { numeric: true });
    return (ascending ? order : -order) || a.index - b.index;
  });
  body.append(...rows.map(({ row }) => row));
}

function filter(table: HTMLTableElement, text: string): void {
  const words = text.toLowerCase().split(/\s+/).filter(Boolean);
  // Looked for is everything, folded or not.
  table.classList.toggle('sought', words.length > 0);
  for (const row of table.tBodies[0].rows) {
    const content = (row.textContent ?? '').toLowerCase();
    row.hidden = !words.every((word) => content.includes(word));
  }
}
