import {randomBytes} from 'node:crypto'
import {once} from 'node:events'
import {businessDateOf, realClock} from '../core/clock.ts'
import {newError} from '../core/errors.ts'
import {groupThousands, quantity} from '../core/money.ts'
import {createApiKey, listApiKeys, revokeApiKey, SCOPES, type Scope} from '../service/access.ts'
import {linkPortfolio, seedPortfolio} from '../service/portfolio.ts'
import {openServiceDatabase, type ServiceDatabase} from '../service/service-database.ts'
import {type CliCommand, type Invocation, parsedOption} from './command.ts'
import {renderTable} from './table.ts'

export const commands = {service: addService}

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

/** More deals get borrowers and documents only with --links: a million would take a minute and gigabytes. */
const LINKED_DEALS = 100_000

function addService(command: CliCommand): void {
  const service = command
    .example('service --deals 500')
    .countOption('--port <port>', 'port to listen on; 0 takes a free one', 65_535, 0)
    .countOption('--deals <count>', 'deals to begin with', 10_000_000, 2500)
    .option('--seed <seed>', 'the same seed gives the same portfolio', '7')
    .option(
      '--links',
      `give the deals borrowers and documents; the default up to ${groupThousands(LINKED_DEALS)} deals`,
    )
    .option('--no-links', 'deals only')
    .option('--db <file>', 'keep everything in this SQLite file and a folder beside it; in memory by default')
    .option('--api-key <key>', 'the key to accept, sk_test_… or sk_live_…; a new one by default')
    .countOption(
      '--rate <per-second>',
      'answer 429 above this many requests a second of one key; 0 for no limit',
      100_000,
      100,
    )
    .option(
      '--allow-private-webhooks',
      'let notifications go to this machine and its networks, and over http',
      false,
    )
    .examines()
    .does(async ({cli, config, options, world}: Invocation<ServiceOptions>) => {
      const apiKey = options.apiKey ?? `sk_test_${randomBytes(18).toString('base64url')}`
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

interface KeyOptions {
  db?: string
  live?: boolean
  scope: Scope[]
}

const DB_OPTION = ['--db <file>', "the service's SQLite file"] as const

function addServiceKeys(service: CliCommand): void {
  const keys = service.command('keys').description('create, list and revoke API keys kept in --db')

  keys
    .command('create <name>')
    .example('service keys create reporting --db service.sqlite --scope read')
    .description('make a key; it is shown once')
    .option(...DB_OPTION)
    .option('--live', 'a key that begins with sk_live_ instead of sk_test_')
    .addOption(
      parsedOption('--scope <scopes>', SCOPES_FORM, {parse: parseScopes, expected: SCOPES_FORM}).default(
        SCOPES,
      ),
    )
    .examines()
    .does(
      ({options}: Invocation<KeyOptions>, name: string) => {
        const {live, scope: scopes} = options
        using database = openKeys(options)
        const kind = live ? 'live' : 'test'
        const {id, key} = createApiKey(database, {kind, name, scopes, now: realClock.now()})
        return {id, api_key: key, scopes}
      },
      ({id, api_key}) => `Key ${id}, shown this once:\n  LOANTAPE_API_KEY=${api_key}`,
    )

  keys
    .command('list')
    .example('service keys list --db service.sqlite')
    .description('every key, never its secret')
    .option(...DB_OPTION)
    .examines()
    .does(
      ({options}: Invocation<KeyOptions>) => {
        using database = openKeys(options)
        return {keys: listApiKeys(database)}
      },
      (result) =>
        renderTable(
          result.keys.map(({id, name, prefix, scopes, revoked_at}) => {
            return {id, name, begins_with: prefix, scopes: scopes.join(','), revoked: revoked_at}
          }),
        ),
    )

  keys
    .command('revoke <id>')
    .example('service keys revoke 4f1c2a --db service.sqlite')
    .description('revoke a key, at once and for good; a running service refuses it from then on')
    .option(...DB_OPTION)
    .examines()
    .does(
      ({options}: Invocation<KeyOptions>, id: string) => {
        using database = openKeys(options)
        if (revokeApiKey(database, id, realClock.now())) return {id, revoked: true}
        throw newError(
          'UNKNOWN_NAME',
          `Key '${id}' in '${options.db}': expected the id of a key that is not revoked.`,
          {next: '`loantape service keys list` shows the ids.'},
        )
      },
      ({id}) => `Key ${id} is revoked.`,
    )
}

const SCOPES_FORM = 'read, write or read,write'

function parseScopes(text: string): Scope[] | undefined {
  const words = text.split(',')
  const scopes = SCOPES.filter((scope) => words.includes(scope))
  return scopes.length > 0 && words.length === scopes.length ? scopes : undefined
}

function openKeys({db}: KeyOptions): ServiceDatabase {
  if (db !== undefined) return openServiceDatabase(db)
  throw newError('USAGE', 'Option --db is missing: expected the SQLite file of the service.')
}
