/** One column of a printed table. */
export interface PrintedColumn {
  title: string
  isNumber?: boolean
}

/** Lays rows out in columns of equal width, numbers to the right. */
export function renderTable(columns: readonly PrintedColumn[], rows: readonly (readonly string[])[]): string {
  const widths = columns.map(({title}, index) =>
    Math.max(title.length, ...rows.map((row) => [...(row[index] ?? '')].length)),
  )
  const renderLine = (cells: readonly string[]) =>
    columns
      .map(({isNumber}, index) => {
        const cell = cells[index] ?? ''
        const padding = ' '.repeat((widths[index] ?? 0) - [...cell].length)
        return isNumber ? padding + cell : cell + padding
      })
      .join('  ')
      .trimEnd()
  const rule = widths.map((width) => '─'.repeat(width)).join('  ')
  return [renderLine(columns.map(({title}) => title)), rule, ...rows.map(renderLine)].join('\n')
}
