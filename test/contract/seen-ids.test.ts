import fc from 'fast-check'
import {expect, test} from 'vitest'
import {createSeenIds} from '../../src/contract/list.ts'

test('distinguishes new ids from known ones, whatever they are', () => {
  fc.assert(
    fc.property(fc.array(fc.string({unit: 'binary', maxLength: 4}), {maxLength: 100}), (ids) => {
      const seen = createSeenIds()
      const areNew = ids.map((id) => seen.add(id))
      expect(areNew).toEqual(ids.map((id, index) => ids.indexOf(id) === index))
    }),
    {seed: 2026},
  )
})

test('takes hardly any of 200,000 new ids for known ones, and no known one for new', () => {
  const seen = createSeenIds()
  const ids = Array.from({length: 200_000}, (_, index) => `deal_${String(index).padStart(8, '0')}`)
  expect(ids.filter((id) => !seen.add(id)).length).toBeLessThan(20)
  expect(ids.filter((id) => seen.add(id))).toEqual([])
})
