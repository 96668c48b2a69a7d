import {readdirSync, rmSync} from 'node:fs'
import {join} from 'node:path'
import {afterEach, expect, test, vi} from 'vitest'
import {VERSION} from '../../src/core/process.ts'
import {readFiles} from '../support/data.ts'
import {createEarlierLab, FOLDERS} from '../support/earlier-folder.ts'

const archives = readdirSync(FOLDERS)

afterEach(() => void vi.unstubAllEnvs())

test("there is a folder of this version's", () => {
  expect(archives).toContain(`${VERSION}.tgz`)
})

test.each(archives)(
  'the data folder %s goes on: sound, the same batches, the same history, the next night',
  async (archive) => {
    await using lab = await createEarlierLab()
    vi.stubEnv('HTTP_PROXY', lab.proxy)
    vi.stubEnv('NO_PROXY', '')
    lab.load(join(FOLDERS, archive))
    const {folder, at, service} = lab
    const verify = async (now: string) => expect(await at(now, 'verify')).toMatchObject({problems: []})
    await verify('2026-02-04T09:00:00-05:00')
    expect(await at('2026-02-04T09:05:00-05:00', 'rebuild')).toMatchObject({outcome: 'equal'})

    const exports = readFiles(join(folder.exports, 'xero'))
    const batches = [...new Set(Object.keys(exports).map((path) => path.split('/')[0] ?? ''))]
    expect(batches.length).toBeGreaterThan(0)
    rmSync(join(folder.exports, 'xero'), {recursive: true})
    for (const batch of batches) await at('2026-02-04T09:10:00-05:00', 'export', '--reissue', batch)
    expect(readFiles(join(folder.exports, 'xero'))).toEqual(exports)

    // The service as it was when the folder was made, with later changes.
    service.store.update('deal_000001', {status: 'paid_off'})
    service.store.update('deal_000002', {status: 'funded', loan_amount_cents: 240_000_07n})
    expect(await at('2026-02-05T23:30:00-05:00', 'sync')).toMatchObject({outcome: 'released'})
    const ask = async (sql: string) => (await at('2026-02-06T09:00:00-05:00', 'query', sql)).rows
    expect(
      await ask(
        "select paid_off, decreased, difference from mart.funded_rollforward where month = '2026-02'",
      ),
    ).toEqual([{paid_off: '350000.00', decreased: '10000.00', difference: '0.00'}])
    expect(await ask('select note from core.note')).toEqual([{note: 'the first two loans'}])
    const again = await at('2026-02-06T09:03:00-05:00', 'export', 'xero', '--period', '2026-01')
    expect(again).toMatchObject({batches: [{outcome: 'unchanged'}]})
    const {periods} = await at('2026-02-06T09:05:00-05:00', 'period', 'list')
    expect(periods).toMatchObject([{period: '2026-01', state: 'closed'}, {period: '2026-02'}])
    await verify('2026-02-06T09:10:00-05:00')
  },
)
