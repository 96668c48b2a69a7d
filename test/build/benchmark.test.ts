import {mkdirSync} from 'node:fs'
import {expect, test} from 'vitest'
import {writeLargeHistory, writeNight} from '../../scripts/bench/large-history.ts'
import {createLab} from '../support/lab.ts'

test('the history built for benchmarks passes every check, and so does the night after it', async () => {
  await using lab = await createLab({tables: 'all'})
  mkdirSync(lab.folder.root)
  await writeLargeHistory(lab.folder.warehouse, 160)
  expect(await lab.run(['build'])).toMatchObject({code: 0})
  await writeNight(lab.folder.warehouse, 4)
  expect(await lab.run(['build'])).toMatchObject({code: 0})
  expect(await lab.query('select deals from mart.portfolio_summary')).toEqual([{deals: '160'}])
})
