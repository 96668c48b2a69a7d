import fc from 'fast-check'
import {expect, test} from 'vitest'
import {z} from 'zod'
import {listRepeated, parseJson, parseWritten, sliceJson} from '../../src/core/json.ts'

const aBlank = fc.constantFrom('', ' ', '\n', '\t ')
const AWKWARD = [
  '12345678901234567890',
  '1.10',
  '-0.00',
  '1e2',
  'null',
  '"\\u0041 \\" ] } , \\\\"',
  '""',
  '"a\\": {"',
]
const aText = fc.string({unit: 'binary'})

/** JSON as others write it, with blanks anywhere, needless escapes and repeated names; `paths` are those of the repeated names. */
const written = fc.letrec<{value: {text: string; paths: (string | number)[][]}}>((tie) => ({
  value: fc.oneof(
    {depthSize: 'small', withCrossShrink: true},
    fc
      .oneof(
        fc.constantFrom(...AWKWARD, '"x:y"', '[]', '{}'),
        aText.map((text) => JSON.stringify(text)),
      )
      .map((text) => ({text, paths: []})),
    fc.array(fc.tuple(aBlank, tie('value'), aBlank), {maxLength: 4}).map((items) => ({
      text: `[${items.map(([before, {text}, after]) => `${before}${text}${after}`)}]`,
      paths: items.flatMap(([, {paths}], index) => paths.map((path) => [index, ...path])),
    })),
    fc
      .array(fc.tuple(fc.oneof(fc.constantFrom('a', 'b', 'deep'), aText), aBlank, aBlank, tie('value')), {
        maxLength: 4,
      })
      .map((members) => ({
        text: `{${members.map(([name, before, after, {text}]) => `${before}${JSON.stringify(name)}${after}:${before}${text} `)}}`,
        paths: members.flatMap(([name, , , {paths}], index) => [
          ...(members.slice(0, index).some(([earlier]) => earlier === name) ? [[name]] : []),
          ...paths.map((path) => [name, ...path]),
        ]),
      })),
  ),
})).value

test('every value of a JSON text is found as written', () => {
  function compare(text: string, value: unknown, path: (string | number)[]): void {
    const found = sliceJson(text, path)
    expect(found).toBeDefined()
    expect(JSON.parse(found ?? '')).toEqual(value)
    expect(found).toBe(found?.trim())
    expect(text).toContain(found)
    if (Array.isArray(value)) {
      value.forEach((item, position) => {
        compare(text, item, [...path, position])
      })
      expect(sliceJson(text, [...path, value.length])).toBeUndefined()
    } else if (typeof value === 'object' && value !== null)
      for (const [name, member] of Object.entries(value)) compare(text, member, [...path, name])
    else expect(sliceJson(text, [...path, 'x'])).toBeUndefined()
  }
  fc.assert(
    fc.property(written, fc.constantFrom('', ' \n'), ({text}, blank) => {
      compare(`${blank}${text}${blank}`, JSON.parse(text), [])
    }),
    {seed: 33, numRuns: 500},
  )
})

test('digits, order and spelling stay, and of a repeated name the last counts', () => {
  const text = '{"data": [{"b":1, "n" : 12345678901234567890,"a":"\\u0041"} , {"n":1,"n":2.50}]}'
  expect(sliceJson(text, ['data', 0])).toBe('{"b":1, "n" : 12345678901234567890,"a":"\\u0041"}')
  expect(sliceJson(text, ['data', 1, 'n'])).toBe('2.50')
  expect(sliceJson(text, ['data', 2])).toBeUndefined()
  expect(sliceJson('{"a": {"x": 1}, "a": {}}', ['a', 'x'])).toBeUndefined()
  // Nested deeper than recursive calls could follow.
  const deep = `${'['.repeat(200_000)}1${']'.repeat(200_000)}`
  expect(sliceJson(`{"data":${deep}}`, ['data'])).toBe(deep)
})

test('reports each repeated name in an object, and no other', () => {
  fc.assert(
    fc.property(written, ({text, paths}) => {
      const value = parseJson(text)
      expect(JSON.stringify(value)).toBe(JSON.stringify(JSON.parse(text)))
      if (typeof value !== 'object' || value === null || Array.isArray(value)) return
      const shallow = paths.map((path) => path.slice(0, 5))
      expect([...listRepeated(value)].map(String).sort()).toEqual(shallow.map(String).sort())
      expect(listRepeated({...value})).toEqual(listRepeated(value))
    }),
    {seed: 2026, numRuns: 2000},
  )
  // A name with an escape is the same name.
  expect(listRepeated(parseJson('{"deals": [{"id": 1, "i\\u0064": 2}]}'))).toEqual([['deals', 0, 'id']])
  // The value that counts lacks the name, but every object inherits it.
  parseJson('{"a": {"__proto__": {"b": 1, "b": 2}}, "a": {}}')
  expect(listRepeated({})).toEqual([])
  // A whole list in one answer, each record of which repeats a name.
  const many = `{"deals": [${Array(300_000).fill('{"a":0,"a":0}')}]}`
  expect(listRepeated(parseJson(many))).toHaveLength(300_000)
})

test('a file or an answer with a byte order mark is read', () => {
  expect(listRepeated(parseJson('\ufeff{"a": 1, "a": 2}'))).toEqual([['a']])
  const refuse = (problem: string) => new Error(problem)
  expect(parseWritten('\ufeff{"a": 1}', refuse, z.unknown())).toEqual({a: 1})
  const twice = () => parseWritten('\ufeff{"a": 1, "a": 2}', refuse, z.unknown())
  expect(twice).toThrow('a: expected each name once')
})
