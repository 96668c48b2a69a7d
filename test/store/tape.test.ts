import {readdirSync, readFileSync, rmSync, statSync, writeFileSync} from 'node:fs'
import {join} from 'node:path'
import fc from 'fast-check'
import {expect, test} from 'vitest'
import {dataFolderAt} from '../../src/store/data-folder.ts'
import {
  createTape,
  type Frame,
  openTape,
  readEnd,
  readLines,
  resumeTape,
  type TapeEnd,
  type TapeLine,
} from '../../src/store/tape.ts'
import {createTapeKey, findReadKey, makeTapeKey, type TapeKey} from '../../src/store/tape-key.ts'
import {failureOf} from '../support/lab.ts'
import {useFolder} from '../support/set-up.ts'

const {root} = useFolder().folder
const key = createTapeKey(Buffer.alloc(32, 7))

/** Bodies of every kind: empty, text with line ends and quotes, bytes that are not text. */
const aBody = fc.oneof(
  fc.constant(undefined),
  fc.string({unit: 'binary'}).map((text) => Buffer.from(text)),
  fc.uint8Array({maxLength: 300}).map((bytes) => Buffer.from(bytes)),
  fc.constant(Buffer.from('{"chain":"","sha256":"x"}\n\r\n\u2028","chain":"')),
)
const aFrame: fc.Arbitrary<Frame> = fc.record({
  frame: fc.constantFrom('list' as const, 'detail' as const, 'outcome' as const),
  cursor: fc.option(fc.string({unit: 'binary'})),
  // `source.json` names parameters.
  request: fc.dictionary(fc.oneof(fc.constant('chain'), fc.string()), fc.oneof(fc.string(), fc.integer())),
})
const aGroup = fc.array(fc.tuple(aFrame, aBody), {minLength: 1, maxLength: 4})

function readAll(path: string, by: TapeKey = key): {lines: TapeLine[]; end: TapeEnd} {
  const {lines, end} = openTape(path, by)
  return {lines: [...lines], end}
}

function writeTape(path: string, groups: [Frame, Buffer | undefined][][]): number[] {
  using tape = createTape(path, key, '0123456789abcdef')
  const ends = [statSync(path).size]
  for (const group of groups) {
    for (const [frame, body] of group) tape.add(frame, body)
    tape.store()
    ends.push(statSync(path).size)
  }
  tape.finish()
  return ends
}

const saidOf = (lines: readonly TapeLine[]) => lines.map(({frame, body}) => [frame, body])
const asJson = (group: [Frame, Buffer | undefined][]) =>
  group.map(([frame, body]) => [JSON.parse(JSON.stringify(frame)) as Frame, body])

test('lines that one text could not hold are several groups, each read by itself', () => {
  const path = join(root, 'large')
  // As JSON text, these bytes are four times as many.
  const body = Buffer.alloc(2 ** 24, '\x01\n')
  const frame: Frame = {frame: 'part'}
  writeTape(path, [
    [...Array.from({length: 3}, (): [Frame, Buffer] => [frame, body]), [{frame: 'act'}, undefined]],
  ])
  const {lines, end} = openTape(path, key)
  const act = [...lines].at(-1)
  expect(end).toMatchObject({groups: 4, lines: 4, problem: null})
  expect(act?.parts.map((part) => part.equals(body))).toEqual([true, true, true])
})

test('what is written is read back, byte for byte', () => {
  const path = join(root, 'whole')
  fc.assert(
    fc.property(fc.array(aGroup, {maxLength: 5}), (groups) => {
      rmSync(path, {force: true})
      writeTape(path, groups)
      const {lines, end} = readAll(path)
      expect(saidOf(lines)).toEqual(groups.flatMap(asJson))
      expect(end).toMatchObject({problem: null, groups: groups.length, bytes: statSync(path).size})
      expect(statSync(path).mode & 0o777).toBe(0o400)
      expect(readFileSync(path, 'latin1')).not.toContain('frame')
    }),
    {numRuns: 60, seed: 7},
  )
})

test('after a line that could not be stored, none is', () => {
  const tape = createTape(join(root, 'failing'), key, '0123456789abcdef')
  tape.add({frame: 'list'})
  tape[Symbol.dispose]()
  // Lines that follow one that is lost would not follow the line before.
  for (const _ of [1, 2]) expect(tape.store).toThrow('EBADF')
})

test('cut off at any byte, it keeps what was stored, shows nothing torn, and can be continued', () => {
  const path = join(root, 'cut')
  const groups = [
    [[{frame: 'begin', tape: 'w_1'}, undefined]],
    [[{frame: 'list', cursor: null}, Buffer.from('{"data":[1]}')]],
    [[{frame: 'list', cursor: 'a'}, Buffer.from([0xff, 0x00, 0x0a])]],
  ] as [Frame, Buffer | undefined][][]
  const ends = writeTape(path, groups)
  const whole = readFileSync(path)
  for (let length = 0; length < whole.length; length += 1) {
    rmSync(path, {force: true})
    writeFileSync(path, whole.subarray(0, length))
    const stored = ends.filter((end) => end <= length).length - 1
    const {lines, end} = readAll(path)
    expect(saidOf(lines)).toEqual(groups.slice(0, Math.max(stored, 0)).flat())
    expect(end.problem === null, `cut at ${length}`).toBe(ends.includes(length))
    if (stored < 0) continue
    {
      using tape = resumeTape(path, key, end)
      tape.add({frame: 'outcome', outcome: 'abandoned'})
      tape.finish()
    }
    const again = readAll(path)
    expect(again.end.problem).toBeNull()
    expect(again.lines.at(-1)?.frame).toEqual({frame: 'outcome', outcome: 'abandoned'})
  }
  // A machine that fails may leave zeros after the last group.
  rmSync(path)
  writeFileSync(path, Buffer.concat([whole, Buffer.alloc(64)]))
  expect(readAll(path).end).toMatchObject({groups: 3, problem: 'it is cut off'})
  expect(readEnd(path, key)).toMatchObject({last: {frame: {cursor: 'a'}}, bytes: whole.length})
})

test('a line that does not follow the one before is found, though it is sealed with the key', () => {
  const path = join(root, 'broken')
  writeTape(path, [[[{frame: 'begin'}, undefined]]])
  {
    using tape = resumeTape(path, key, {...readAll(path).end, chain: 'f'.repeat(64)})
    tape.add({frame: 'outcome'})
    tape.finish()
  }
  expect(readAll(path).end).toMatchObject({groups: 1, problem: 'it does not follow the line before'})
})

test('each of a thousand flipped bits is found', async () => {
  const path = join(root, 'flipped')
  const groups = Array.from({length: 8}, (_, index) => [
    [{frame: 'list', cursor: `c${index}`}, Buffer.from(`{"data":[${index}]}`.repeat(10))],
  ]) as [Frame, Buffer | undefined][][]
  writeTape(path, groups)
  const whole = readFileSync(path)
  const bits = fc.sample(fc.integer({min: 0, max: whole.length * 8 - 1}), {numRuns: 1000, seed: 15})
  for (const bit of bits) {
    const damaged = Buffer.from(whole)
    damaged[bit >> 3]! ^= 1 << (bit & 7)
    rmSync(path, {force: true})
    writeFileSync(path, damaged)
    const error = await failureOf(Promise.resolve().then(() => [...readLines(path, key)]))
    expect(error, `bit ${bit}`).toMatchObject({code: expect.stringMatching(/^TAPE_(DAMAGED|KEY_WRONG)$/)})
  }
})

test('a line of a later version is refused, and its tape neither called damaged nor shortened', async () => {
  const path = join(root, 'later')
  writeTape(path, [
    [[{frame: 'begin'}, undefined]],
    [[{frame: 'since' as Frame['frame']}, Buffer.from('{"data":[]}')]],
  ])
  for (const read of [() => readAll(path), () => readEnd(path, key)])
    expect(await failureOf(Promise.resolve().then<unknown>(read))).toMatchObject({
      code: 'DATA_NEWER',
      message: expect.stringContaining(`Tape '${path}'`),
    })
})

test('a group opens only on its own tape and in its own place', () => {
  const [one, other] = [join(root, 'one'), join(root, 'other')]
  const group = (name: string) =>
    [[{frame: 'list', cursor: name}, Buffer.from('{"data":[]}')]] as [Frame, Buffer][]
  const ends = writeTape(one, [group('a'), group('b')])
  writeTape(other, [group('a'), group('b')])
  const bytes = readFileSync(one)
  const head = readFileSync(other).subarray(0, ends[0])
  const groups = [bytes.subarray(ends[0], ends[1]), bytes.subarray(ends[1])] as const
  const attempts: [string, Uint8Array[], number][] = [
    ['as it was written', [bytes.subarray(0, ends[0]), ...groups], 2],
    ['all groups under the header of another tape', [head, ...groups], 0],
    ['its first group on another tape', [head, groups[0], readFileSync(other).subarray(ends[1])], 0],
    ['its second group on another tape', [readFileSync(other).subarray(0, ends[1]), groups[1]], 1],
    ['its groups in another order', [bytes.subarray(0, ends[0]), groups[1], groups[0]], 0],
  ]
  for (const [what, parts, read] of attempts) {
    const moved = join(root, 'moved')
    writeFileSync(moved, Buffer.concat(parts))
    const {end} = readAll(moved)
    expect([end.groups, end.problem === null], what).toEqual([read, read === 2])
  }
})

test('a key that another process has made meanwhile is used; without its key a tape says which key it needs', async () => {
  const config = {tapeKeyFile: undefined, defaultKeyFile: join(root, 'keys/tape.key')}
  const data = dataFolderAt(join(root, 'data'))
  const first = makeTapeKey(config, data)
  expect(makeTapeKey(config, data)).toEqual(first)
  expect(findReadKey(config, data)).toEqual(first)
  expect(readdirSync(join(root, 'keys'))).toEqual(['tape.key'])
  const path = join(root, 'locked')
  writeTape(path, [[[{frame: 'begin'}, undefined]]])
  const error = await failureOf(Promise.resolve().then(() => readAll(path, first)))
  expect(error).toMatchObject({code: 'TAPE_KEY_WRONG', message: expect.stringContaining(key.fingerprint)})
})
