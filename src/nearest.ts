/** How many letters must be changed, dropped or added to make one text the other. */
function countEdits(from: string, to: string): number {
  let row = Array.from({length: to.length + 1}, (_, index) => index)
  for (const [index, letter] of [...from].entries()) {
    const next = [index + 1]
    for (const [column, other] of [...to].entries()) {
      const [kept = 0, gone = 0, come = 0] = [row[column], row[column + 1], next[column]]
      next.push(Math.min(kept + Number(letter !== other), gone + 1, come + 1))
    }
    row = next
  }
  return row.at(-1) ?? 0
}

const bareOf = (name: string) => name.slice(name.indexOf('.') + 1)

/**
 * The known name that is most like the one asked for; undefined where more than a third of its letters differ, those of a schema
 * not counted.
 */
export function findNearest(asked: string, known: readonly string[]): string | undefined {
  const ranked = known
    .map((name) => ({name, edits: countEdits(asked, asked.includes('.') ? name : bareOf(name))}))
    .sort((a, b) => a.edits - b.edits)
  const [best] = ranked
  return best && best.edits <= bareOf(asked).length / 3 ? best.name : undefined
}

/** What was expected in place of a name that is not known: the nearest, or all there are where none is near. */
export function expectOneOf(asked: string, known: readonly string[]): string {
  const nearest = findNearest(asked, known)
  return nearest === undefined
    ? `expected one of ${known.join(', ')}`
    : `expected a name that is known; the nearest is '${nearest}'`
}
