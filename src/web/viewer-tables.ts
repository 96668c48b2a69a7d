/** Whether viewers can read a table. @param viewerTables `LOANTAPE_VIEWER_TABLES`: `mart.*,core.deal` */
export function isForViewers(name: string, viewerTables: string | undefined): boolean {
  if (viewerTables === undefined) return true
  return viewerTables
    .split(/\s*,\s*/)
    .some((one) => one === name || (one.endsWith('.*') && name.startsWith(one.slice(0, -1))))
}
