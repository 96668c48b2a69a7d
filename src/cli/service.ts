import {randomBytes} from 'node:crypto'
import {once} from 'node:events'
import {existsSync} from 'node:fs'
import {businessDateOf, realClock} from '../core/clock.ts'
import {newError} from '../core/errors.ts'
import {quantity} from '../core/money.ts'
import {createApiKey, listApiKeys, revokeApiKey, SCOPES} from '../service/access.ts'
import {linkPortfolio, seedPortfolio} from '../service/portfolio.ts'
import {openServiceDatabase, type ServiceDatabase} from '../service/service-database.ts'
import {does, type Invocation, parseWords} from './command.ts'
import {tableOf} from './table.ts'

export const commands = {
  service: does(async ({cli, config, options, world}: Invocation<ServiceOptions>) => {
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
      service.store.transaction(() => {
        seedPortfolio(service.store, {deals, seed, today})
        if (links) linkPortfolio(service, {seed, since: 0, until: Date.parse(today)})
      })
    }
    cli.printResult(
      options,
      {url: service.url, api_key: apiKey},
      ({url, api_key}) =>
        `Deal Financing Service with ${quantity(service.store.count(), 'deal')}, until Ctrl-C:\n` +
        `  LOANTAPE_BASE_URL=${url}\n  LOANTAPE_API_KEY=${api_key}`,
    )
    if (!world.signal.aborted) await once(world.signal, 'abort')
  }),
  'service keys create': does(
    ({options}: Invocation<KeyOptions>, name: string) => {
      const {live} = options
      const scopes = parseWords(options.scope, '--scope', SCOPES)
      using database = openKeys(options, true)
      const kind = live ? 'live' : 'test'
      const {id, key} = createApiKey(database, {kind, name, scopes, now: realClock.now()})
      return {id, api_key: key, scopes}
    },
    ({id, api_key}) => `Key ${id}, shown this once:\n  LOANTAPE_API_KEY=${api_key}`,
  ),
  'service keys list': does(
    ({options}: Invocation<KeyOptions>) => {
      using database = openKeys(options)
      return {keys: listApiKeys(database)}
    },
    ({keys}) => {
      const rows = keys.map(({id, name, prefix, scopes, revoked_at}) => {
        return {id, name, begins_with: prefix, scopes: scopes.join(','), revoked: revoked_at}
      })
      return rows.length === 0 ? 'No key has been created here.' : tableOf(rows)
    },
  ),
  'service keys revoke': does(
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
  ),
}

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

/** Above this number, deals get borrowers and documents only with --links: for a million, they take a minute and gigabytes. */
const LINKED_DEALS = 100_000

interface KeyOptions {
  db?: string
  live?: boolean
  scope: string
}

function openKeys({db}: KeyOptions, mayBeNew = false): ServiceDatabase {
  if (db === undefined)
    throw newError('USAGE', 'Option --db is missing: expected the SQLite file of the service.')
  if (mayBeNew || existsSync(db)) return openServiceDatabase(db)
  throw newError(
    'SERVICE_DB_OPEN',
    `Option --db '${db}': expected the SQLite file of the service, found none.`,
  )
}
