import {randomBytes} from 'node:crypto'
import {once} from 'node:events'
import {businessDateOf} from '../clock.ts'
import {groupThousands, quantity} from '../money.ts'
import {linkPortfolio} from '../service/linked-portfolio.ts'
import {seedPortfolio} from '../service/portfolio.ts'
import type {Call, CliCommand} from './command.ts'
import {parseCount} from './options.ts'
import {addServiceKeys} from './service-keys.ts'

interface ServiceOptions {
  port: number
  deals: number
  seed: string
  links?: boolean
  db?: string
  apiKey?: string
  rate: number
  allowPrivateWebhooks?: boolean
}

/** Up to so many deals get borrowers and documents unasked; a million of them would take a minute and gigabytes. */
const LINKED_DEALS = 100_000

/** `loantape service`. */
export default function addService(command: CliCommand): void {
  const service = command
    .example('service --deals 500')
    .option('--port <port>', 'port to listen on; 0 takes a free one', parseCount('--port', 65_535), 0)
    .option('--deals <count>', 'deals to begin with', parseCount('--deals', 10_000_000), 2500)
    .option('--seed <seed>', 'the same seed gives the same portfolio', '7')
    .option(
      '--links',
      `give the deals borrowers and documents; the default up to ${groupThousands(LINKED_DEALS)} deals`,
    )
    .option('--no-links', 'deals alone')
    .option('--db <file>', 'keep everything in this SQLite file and a folder beside it; in memory by default')
    .option('--api-key <key>', 'the key to accept, sk_test_… or sk_live_…; a new one by default')
    .option(
      '--rate <per-second>',
      'answer 429 above this many requests a second of one key; 0 for no limit',
      parseCount('--rate', 100_000),
      100,
    )
    .option(
      '--allow-private-webhooks',
      'let notifications go to this machine and its networks, and over http',
      false,
    )
    .examines()
    .does(async ({cli, config, options, world}: Call<ServiceOptions>) => {
      const apiKey = options.apiKey ?? `sk_test_${randomBytes(18).toString('base64url')}`
      // Loaded here: no other command needs a web server.
      const {startService} = await import('../service/server.ts')
      await using service = await startService({
        port: options.port,
        apiKeys: [apiKey],
        clock: world.clock,
        log: world.log,
        webhooks: {allowPrivate: options.allowPrivateWebhooks ?? false},
        ...(options.db !== undefined && {dbPath: options.db}),
        ...(options.rate > 0 && {rateLimit: {perSecond: options.rate, burst: options.rate}}),
      })
      if (service.store.count() === 0) {
        const today = businessDateOf(world.clock.now(), config)
        const {deals, seed, links = deals <= LINKED_DEALS} = options
        seedPortfolio(service.store, {deals, seed, today})
        if (links) linkPortfolio(service, {seed, since: 0, until: Date.parse(today)})
      }
      cli.printResult(
        options,
        {url: service.url, api_key: apiKey},
        ({url, api_key}) =>
          `Deal Financing Service with ${quantity(service.store.count(), 'deal')}, until Ctrl-C:\n` +
          `  LOANTAPE_BASE_URL=${url}\n  LOANTAPE_API_KEY=${api_key}`,
      )
      if (!world.signal.aborted) await once(world.signal, 'abort')
    })
  addServiceKeys(service)
}
