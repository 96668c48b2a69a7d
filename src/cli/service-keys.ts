import {realClock} from '../clock.ts'
import {newError} from '../errors.ts'
import {createApiKey, listApiKeys, revokeApiKey, SCOPES, type Scope} from '../service/api-keys.ts'
import {openServiceDatabase, type ServiceDatabase} from '../service/service-database.ts'
import type {Call, CliCommand} from './command.ts'
import {renderTable} from './table.ts'

interface KeyOptions {
  db?: string
  live?: boolean
  scope: Scope[]
}

const DB_OPTION = ['--db <file>', "the service's SQLite file"] as const

/** `loantape service keys`. */
export function addServiceKeys(service: CliCommand): void {
  const keys = service.command('keys').description('create, list and revoke API keys kept in --db')

  keys
    .command('create <name>')
    .example('service keys create reporting --db service.sqlite --scope read')
    .description('make a key; it is shown once')
    .option(...DB_OPTION)
    .option('--live', 'a key that begins with sk_live_ instead of sk_test_')
    .option('--scope <scopes>', 'read, write or read,write', parseScopes, [...SCOPES])
    .examines()
    .does(
      ({options}: Call<KeyOptions>, name: string) => {
        const {live, scope: scopes} = options
        const {id, key} = withDatabase(options, (database) =>
          createApiKey(database, {kind: live ? 'live' : 'test', name, scopes, now: realClock.now()}),
        )
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
      ({options}: Call<KeyOptions>) => ({keys: withDatabase(options, listApiKeys)}),
      (result) =>
        renderTable(
          ['id', 'name', 'begins with', 'scopes', 'revoked'],
          result.keys.map(({id, name, prefix, scopes, revoked_at}) => [
            id,
            name,
            prefix,
            scopes.join(','),
            revoked_at ?? '',
          ]),
        ),
    )

  keys
    .command('revoke <id>')
    .example('service keys revoke 4f1c2a --db service.sqlite')
    .description('revoke a key, at once and for good; a running service refuses it from then on')
    .option(...DB_OPTION)
    .examines()
    .does(
      ({options}: Call<KeyOptions>, id: string) => {
        if (withDatabase(options, (database) => revokeApiKey(database, id, realClock.now())))
          return {id, revoked: true}
        throw newError(
          'UNKNOWN_NAME',
          `Key '${id}' in '${options.db}': expected the id of a key that is not revoked.`,
          {next: '`loantape service keys list` shows the ids.'},
        )
      },
      ({id}) => `Key ${id} is revoked.`,
    )
}

function parseScopes(text: string): Scope[] {
  const words = text.split(',')
  const scopes = SCOPES.filter((scope) => words.includes(scope))
  if (scopes.length > 0 && words.length === scopes.length) return scopes
  throw newError('USAGE', `Value '${text}' in --scope: expected read, write or read,write.`)
}

function withDatabase<T>({db}: KeyOptions, work: (database: ServiceDatabase) => T): T {
  if (db === undefined)
    throw newError('USAGE', 'Option --db is missing: expected the SQLite file of the service.')
  const database = openServiceDatabase(db)
  try {
    return work(database)
  } finally {
    database.close()
  }
}
