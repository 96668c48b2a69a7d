import {expect, test} from 'vitest'
import {proveWorld} from './world.ts'

test('whatever happens to a lender, every table and every book is what an oracle says', async () => {
  // Always the same story; `npm run proof world` draws others.
  const {figures} = await proveWorld({runs: 1, days: 2, seed: 'gate'})
  for (const compared of ['releases compared', 'balances compared', 'rebuilt and compared'])
    expect(figures[compared]).toBeGreaterThanOrEqual(1)
})
