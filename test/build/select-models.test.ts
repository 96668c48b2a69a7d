import {expect, test} from 'vitest'
import {selectModels} from '../../src/build/read-models.ts'

/** raw.x → core.a → core.b → mart.c → mart.d, and mart.e from core.a alone. */
const reads = new Map([
  ['core.a', ['raw.x', 'seed.y']],
  ['core.b', ['core.a']],
  ['mart.c', ['core.b', 'seed.y']],
  ['mart.d', ['mart.c']],
  ['mart.e', ['core.a']],
])

test.each([
  ['mart.c', 'mart.c'],
  ['mart.*', 'mart.c mart.d mart.e'],
  ['*.a', 'core.a'],
  ['mart.c+', 'mart.c mart.d'],
  // Seeds and raw tables are left out.
  ['+mart.c', 'core.a core.b mart.c'],
  ['+mart.c+', 'core.a core.b mart.c mart.d'],
  ['+core.b,mart.e', 'core.a core.b mart.e'],
  ['core.a  mart.d, mart.e', 'core.a mart.d mart.e'],
])('%s selects %s', (selection, expected) => {
  expect([...selectModels(selection, reads)].sort().join(' ')).toBe(expected)
})

test.each([
  [
    'mart.x',
    'UNKNOWN_NAME',
    /'mart\.x' in --select names no model: expected one of core\.a, core\.b, mart\.c/,
  ],
  ['core.a risk.*', 'UNKNOWN_NAME', /'risk\.\*'/],
  ['raw.x', 'UNKNOWN_NAME', /'raw\.x'/],
  ['mart', 'USAGE', /'mart' in --select: expected schema\.model/],
  ['++mart.c', 'USAGE', /'\+\+mart\.c'/],
  [' ,', 'USAGE', /expected schema\.model/],
])('%s is refused', (selection, code, message) => {
  expect(() => selectModels(selection, reads)).toThrow(
    expect.objectContaining({code, exitCode: 2, message: expect.stringMatching(message)}),
  )
})
