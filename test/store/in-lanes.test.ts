import {expect, test} from 'vitest'
import {z} from 'zod'
import {inLanes, openDatabase} from '../../src/store/database.ts'

/** A piece that waits for others and reports when it begins and ends. */
interface Piece {
  name: string
  after?: string[]
}

async function run(lanes: number, pieces: Piece[]): Promise<{said: string[]; most: number}> {
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
    said.push(`${name} ends`)
    return `${name} ${rows}`
  }
  const waitsFor = ({after = []}: Piece) => pieces.filter(({name}) => after.includes(name))
  expect(await inLanes(db, pieces, work, waitsFor)).toEqual(pieces.map(({name}) => `${name} 0`))
  return {said, most}
}

const [b, c] = ['b', 'c'].map((name) => ({name, after: ['a']}))
const DIAMOND = [{name: 'a'}, b!, c!, {name: 'd', after: ['b', 'c']}]

test('a piece begins once those it waits for have ended, as many at once as there are connections', async () => {
  const {said, most} = await run(2, DIAMOND)
  expect(most).toBe(2)
  expect(said.slice(0, 4)).toEqual(['a begins', 'a ends', 'b begins', 'c begins'])
  expect(said.slice(-2)).toEqual(['d begins', 'd ends'])
  expect((await run(1, DIAMOND)).said).toEqual(
    ['a', 'b', 'c', 'd'].flatMap((name) => [`${name} begins`, `${name} ends`]),
  )
  expect((await run(3, [])).said).toEqual([])
})

test('after a failure nothing new begins, and running pieces are interrupted', async () => {
  await using db = await openDatabase({lanes: 2})
  const begun: string[] = []
  const work = async (name: string, lane: typeof db) => {
    begun.push(name)
    if (name === 'endless')
      await lane.run('select count(*) from range(1000000000) a(i), range(1000000000) b(j) where i + j = -1')
    await lane.run('select 1')
    throw new Error(`${name} failed`)
  }
  await expect(inLanes(db, ['endless', 'short', 'third'], work)).rejects.toThrow('short failed')
  expect(begun).toEqual(['endless', 'short'])
  expect(await inLanes(db, [1, 2, 3], async (piece) => piece * 2)).toEqual([2, 4, 6])
})
