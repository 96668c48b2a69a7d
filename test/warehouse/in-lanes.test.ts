import {expect, test} from 'vitest'
import {z} from 'zod'
import {openDatabase} from '../../src/warehouse/database.ts'
import {inLanes} from '../../src/warehouse/in-lanes.ts'

/** A piece that waits for others and says when it began and ended. */
interface Piece {
  name: string
  after?: string[]
}

async function run(
  lanes: number,
  pieces: Piece[],
  fails: string[] = [],
): Promise<{said: string[]; most: number}> {
  await using db = await openDatabase({lanes})
  const said: string[] = []
  let [underWay, most] = [0, 0]
  const work = async ({name}: Piece, lane: typeof db) => {
    said.push(`${name} begins`)
    underWay += 1
    most = Math.max(most, underWay)
    const {rows} = await lane.one(
      z.object({rows: z.string()}),
      'select count(*) as rows from range(500000) r(i) where sin(i) > 2',
    )
    underWay -= 1
    if (fails.includes(name)) throw new Error(`${name} failed`)
    said.push(`${name} ends`)
    return `${name} ${rows}`
  }
  const waitsFor = ({after = []}: Piece) => pieces.filter(({name}) => after.includes(name))
  try {
    expect(await inLanes(db, pieces, work, waitsFor)).toEqual(pieces.map(({name}) => `${name} 0`))
  } catch (error) {
    said.push(String(error))
  }
  expect(underWay).toBe(0)
  return {said, most}
}

const DIAMOND = [
  {name: 'a'},
  {name: 'b', after: ['a']},
  {name: 'c', after: ['a']},
  {name: 'd', after: ['b', 'c']},
]

test('a piece begins when those it waits for have ended, as many at once as there are connections', async () => {
  const {said, most} = await run(2, DIAMOND)
  expect(most).toBe(2)
  expect(said.slice(0, 4)).toEqual(['a begins', 'a ends', 'b begins', 'c begins'])
  expect(said.slice(-2)).toEqual(['d begins', 'd ends'])
  expect((await run(1, DIAMOND)).said).toEqual(
    ['a', 'b', 'c', 'd'].flatMap((name) => [`${name} begins`, `${name} ends`]),
  )
  expect((await run(3, [])).said).toEqual([])
})

test('after a failure nothing is begun, and what is under way ends first', async () => {
  const {said} = await run(2, [...DIAMOND, {name: 'e', after: ['b']}], ['b'])
  expect(said.at(-1)).toBe('Error: b failed')
  expect(said).toContain('c ends')
  expect(said.some((words) => /^[de] begins/.test(words))).toBe(false)
})
