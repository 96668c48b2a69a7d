import fc from 'fast-check'
import {expect, test} from 'vitest'
import {formatNormalised, parseNormalised} from '../../src/normalise/page-text.ts'

const aText = fc.oneof(fc.string({unit: 'binary'}), fc.constant('{"integer":"5"}'))
const anInstant = fc.bigInt(-(2n ** 62n), 2n ** 62n)
const aPage = fc.record({
  observations: fc.array(
    fc.record({
      id: aText,
      values: fc.array(fc.oneof(aText, fc.boolean(), fc.constant(null), fc.bigInt())),
      present: fc.array(fc.boolean()),
      unknownFields: fc.option(aText),
      observedAt: anInstant,
    }),
  ),
  quarantined: fc.array(
    fc.record({
      id: fc.option(aText),
      path: aText,
      reason: aText,
      record: aText,
      position: fc.nat(),
      observedAt: anInstant,
    }),
  ),
})

test('a page is read back as it was written, whatever it holds', () => {
  fc.assert(
    fc.property(aPage, (page) => {
      expect(parseNormalised(formatNormalised(page))).toEqual(page)
    }),
  )
})
