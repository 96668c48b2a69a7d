import {execFileSync} from 'node:child_process'
import {dirname, join} from 'node:path'
import {startProxy} from '../source/test-server.ts'
import {setAccounts} from './books.ts'
import {createLab, DAY_1, type Lab, someDeals} from './lab.ts'

/** Data folders made by released versions, one archive each: `<version>.tgz`. */
export const FOLDERS: string = join(import.meta.dirname, '../folders')

/** The base URL of such a folder's source: the same on every machine, unlike the address of a lab's service. */
const SOURCE = 'http://deals.company.test/v1'
const PARTS = ['data', 'tape.key']
const rootOf = (lab: Lab) => dirname(lab.folder.root)

/** Creates a lab whose service is reached through a proxy, under the address {@link SOURCE}. */
export async function createEarlierLab() {
  const lab = await createLab({deals: someDeals(12), tables: 'all'})
  const proxy = lab.beside.use(await startProxy(lab.service.url))
  return {
    ...lab,
    proxy: proxy.url,
    /**
     * Runs a command line at a business instant (ISO 8601) and parses the JSON it prints.
     * @throws Error if the command fails
     */
    async at(now: string, ...args: string[]) {
      const ended = await lab.run([...args, '--json'], {LOANTAPE_BASE_URL: SOURCE, LOANTAPE_NOW: now})
      if (ended.code !== 0) throw new Error(`loantape ${args.join(' ')}: ${ended.stderr}`)
      return JSON.parse(ended.stdout)
    },
    save: (archive: string) => execFileSync('tar', ['-czf', archive, '-C', rootOf(lab), ...PARTS]),
    load: (archive: string) => execFileSync('tar', ['-xzf', archive, '-C', rootOf(lab)]),
  }
}

/** Plays two months of a lender: fundings, a payoff, a closed month, exports, a note. */
export async function playEarlier({at, service, folder}: Awaited<ReturnType<typeof createEarlierLab>>) {
  await at('2026-01-05T23:30:00-05:00', 'sync')
  service.store.update('deal_000001', {status: 'funded'})
  service.store.update('deal_000002', {status: 'funded', loan_amount_cents: 250_000_07n})
  await at('2026-01-20T23:30:00-05:00', 'sync')
  await at('2026-01-21T09:00:00-05:00', 'accounting', 'init')
  setAccounts(folder)
  await at('2026-01-21T09:05:00-05:00', 'note', 'add', '--day', '2026-01-20', '--text', 'the first two loans')
  service.store.update('deal_000001', {status: 'paid_off'})
  await at(DAY_1, 'sync')
  await at('2026-02-03T09:00:00-05:00', 'export', 'xero', '--period', '2026-01')
  await at('2026-02-03T09:05:00-05:00', 'period', 'close', '2026-01')
  await at('2026-02-03T09:10:00-05:00', 'export', 'csv')
}
