import type {Client} from 'pg'
import {beforeEach, expect, test, vi} from 'vitest'
import type {World} from '../../src/core/types.ts'
import {openPostgres, type PostgresRequest} from '../../src/export/postgres.ts'
import {publishTo} from '../../src/export/publish.ts'
import type {Release} from '../../src/store/release.ts'
import {createFolder, createWorldAt} from '../support/data.ts'
import {failureOf} from '../support/lab.ts'
import {createPostgres} from '../support/postgres.ts'
import {publishNth, publishTables, publishTypes, TYPES} from '../support/releases.ts'
import {useShared} from '../support/set-up.ts'
import {until} from '../support/until.ts'

let database: string
let number = 0

const data = await useShared(createFolder())
const releases = await Array.fromAsync([2000, 2000, 2000, 500], (deals, index) =>
  publishNth(data.folder, index + 1, {deals}),
)
/** Returns the nth release; the fourth has fewer rows. */
const release = (nth: number) => releases[nth - 1]!
const server = await useShared(createPostgres())
await server.query('postgres', `create role reader login password 'secret of the tests'`)

beforeEach(async () => {
  number += 1
  database = `db_${number}`
  await server.query('postgres', `create database ${database}`)
})

const world = {...createWorldAt('2026-02-02T12:00:00Z')}
world.realClock = {...world.realClock, sleep: () => Promise.resolve()}

async function publish(
  from: Release,
  {
    isForced = false,
    folderId = 'one',
    ...request
  }: Partial<PostgresRequest> & {isForced?: boolean; folderId?: string} = {},
  changes: Partial<World> = {},
) {
  const changed = {...world, ...changes}
  await using target = await openPostgres({url: server.urlOf(database), ...request}, changed)
  return await publishTo(target, from, {command: 'loantape publish postgres', isForced, folderId}, changed)
}

/** Returns the numbers of the releases whose deals readers see. */
const shown = async () =>
  (await server.query(database, 'select distinct nth::int from core.deal')).map(({nth}) => nth)

const schemas = async () =>
  (
    await server.query(
      database,
      `select nspname from pg_namespace where nspname !~ '^pg_' and nspname not in ('public', 'information_schema') order by 1`,
    )
  ).map(({nspname}) => nspname)

/** Expects readers to see the nth release, and nothing to be left of others. */
async function expectOnly(nth: number): Promise<void> {
  expect(await shown()).toEqual([nth])
  expect(await schemas()).toEqual(['core', 'loantape', 'mart'])
}

/** Opens a reader that keeps the release it has read. */
async function holdRelease() {
  const client = await server.connect(database)
  await client.query('begin; select release_id from loantape.release')
  return client
}

test('every table arrives with its rows, types and comments', async () => {
  await server.query('postgres', `alter database ${database} set timezone = 'Asia/Tokyo'`)
  const one = await publishTypes(data.folder)
  expect(await publish(one)).toEqual({
    outcome: 'published',
    release_id: 'types',
    server: `127.0.0.1:${server.port}/${database}`,
    tables: 1,
    rows: 2,
    loaded: 1,
  })
  const rows = await server.query(
    database,
    `select text, money::text, widest::text, finest::text, "count of it"::text as count, ratio, day::text, (instant at time zone 'UTC')::text as instant, truth, null_word
     from kinds.row order by money desc`,
  )
  expect(rows).toEqual(TYPES)
  const types = await server.query(
    database,
    `select string_agg(format_type(atttypid, atttypmod), ', ' order by attnum) as types,
       obj_description(attrelid) as about, max(col_description(attrelid, 2)) as money,
       (select reltuples from pg_class where oid = attrelid) as planned
     from pg_attribute where attrelid = 'kinds.row'::regclass and attnum > 0 group by attrelid`,
  )
  expect(types).toEqual([
    {
      types:
        'text, numeric(18,2), numeric(38,2), numeric(38,38), bigint, double precision, date, timestamp with time zone, boolean, text',
      about: "What\\s's there.",
      money: "USD, 'exact'",
      planned: 2,
    },
  ])
})

test('names that PostgreSQL cannot have, or would cut to the same one, are refused; a long one is published', async () => {
  const long = 'a'.repeat(63)
  const tables = [[`deal_${long}1`, `deal_${long}2`], ['deal']]
  const columns = [['a'], [`${long}1`, `${long}2`]]
  for (const [index, names] of tables.entries()) {
    const selected = columns[index]?.map((name) => `1 as ${name}`)
    const made = names.map((name) => `create table release.core.${name} as select ${selected}`)
    const sql = `create schema release.core; ${made.join('; ')}`
    const refused = await failureOf(
      publish(await publishTables(data.folder, {release_id: `names_${index}`, sql})),
    )
    expect(refused).toMatchObject({code: 'POSTGRES_NAMES', exitCode: 2})
    const [one, other] = (names.length > 1 ? names : columns[index]) ?? []
    expect(refused.message).toContain(`${one}' and 'core.${index > 0 ? 'deal.' : ''}${other}' would`)
    expect(await schemas()).toEqual([])
  }
  const sql = `create schema release.${long}1; create table release.${long}1.deal as select 1 as ${long}1`
  for (const isForced of [false, true]) {
    await publish(await publishTables(data.folder, {release_id: 'long', sql}), {isForced})
    expect(await schemas()).toEqual([long, 'loantape'])
  }
  const odd = 'create schema release.core; create table release.core.deal as select 1 as xmin'
  const asked = publish(await publishTables(data.folder, {release_id: 'refused', sql: odd}), {isForced: true})
  const refused = await failureOf(asked)
  expect(refused).toMatchObject({code: 'PUBLISH_FAILED', exitCode: 1})
  expect(refused.message).toMatch(/, table 'core\.deal', refused: .* "xmin" conflicts/)
})

/** Lets the server run `body` for each row of a table that a later publication makes. */
async function letReact(
  table: string,
  {trigger, timing = '', body}: {trigger: string; timing?: string; body: string},
): Promise<void> {
  await server.query(
    database,
    `create function public.reacted() returns trigger language plpgsql as $$ begin ${body} end $$;
     create function public.react() returns event_trigger language plpgsql as $body$
     declare made record;
     begin
       for made in select * from pg_event_trigger_ddl_commands() where object_identity like '%.${table}' loop
         execute format('create ${trigger} on %s ${timing} for each row execute function public.reacted()', made.object_identity);
       end loop;
     end $body$;
     create event trigger react on ddl_command_end when tag in ('CREATE TABLE') execute function public.react()`,
  )
}

test('a rejected value, and a cent lost on the way, however large the sum, are reported with the table', async () => {
  for (const value of [`'private' || chr(0)`, `date '5881580-01-01'`]) {
    const sql = `create schema release.core; create table release.core.deal as select 'private' as a, ${value} as note`
    const refused = await failureOf(publish(await publishTables(data.folder, {release_id: 'odd', sql})))
    expect(refused).toMatchObject({code: 'POSTGRES_VALUE', exitCode: 1})
    expect(refused.message).toMatch(/^(?!.*(private|5881580)).*Table 'core\.deal', column 'note',/)
  }
  const large = await publishTables(data.folder, {
    release_id: 'large',
    sql: `
      create schema release.core;
      create table release.core.deal as select i as nth, 9999999999999999.99::decimal(18,2) as loan_amount from range(1000) t(i)`,
  })
  await letReact('deal', {
    trigger: 'trigger reacted before insert',
    body: 'if new.nth = 500 then new.loan_amount := new.loan_amount - 0.01; end if; return new;',
  })
  const failure = await failureOf(publish(large))
  expect(failure).toMatchObject({code: 'PUBLISH_INCOMPLETE', exitCode: 1})
  expect(failure.message).toContain("Table 'core.deal'")
  expect(await schemas()).toEqual([])
})

test('a release whose tables have not the rows of its manifest is not published', async () => {
  const whole = release(1)
  const tables = whole.manifest.tables.map((table) => ({...table, rows: table.rows + 1}))
  const failure = await failureOf(publish({...whole, manifest: {...whole.manifest, tables}}))
  expect(failure.message).toMatch(/^Table '[\w.]+' has \d+ rows: its manifest says \d+\./)
  expect(await schemas()).toEqual([])
})

test('a release published already is unchanged, an older one must be forced, and nothing is left over, not even a schema', async () => {
  const [one, two] = [release(1), release(2)]
  // The days that readers see are compared as text.
  await server.query('postgres', `alter database ${database} set datestyle = 'German'`)
  await publish(one)
  await server.query(database, 'drop schema mart cascade')
  expect(await publish(one)).toMatchObject({outcome: 'unchanged', release_id: 'release_1'})
  expect(await publish(one, {isForced: true})).toMatchObject({outcome: 'published', loaded: 2})
  await expectOnly(1)
  const older = await publishTables(data.folder, {release_id: 'older', as_of: '2026-02-01'})
  const known_at = '2026-02-02T23:29:59.999999Z'
  for (const refused of [older, await publishTables(data.folder, {release_id: 'less known', known_at})])
    expect(await failureOf(publish(refused))).toMatchObject({
      code: 'PUBLISH_OLDER',
      exitCode: 2,
      message: expect.stringContaining(`--release ${refused.manifest.release_id} --force`),
    })
  expect(await shown()).toEqual([1])
  expect(await publish(older, {isForced: true})).toMatchObject({outcome: 'published'})
  expect(await publish(two)).toMatchObject({outcome: 'published', rows: 2001})
  expect(await server.query(database, 'select release_id, as_of::text from loantape.release')).toEqual([
    {release_id: 'release_2', as_of: '02.02.2026'},
  ])
  await expectOnly(2)
  const sql = 'create schema release.core; create table release.core.deal as select 1 as a'
  await publish(await publishTables(data.folder, {release_id: 'bare', sql}))
  expect(await schemas()).toEqual(['core', 'loantape'])
})

test('the release of another data folder is replaced by force alone', async () => {
  await publish(release(1))
  expect(await failureOf(publish(release(2), {folderId: 'two'}))).toMatchObject({
    code: 'PUBLISH_FOREIGN',
    exitCode: 2,
    message: expect.stringContaining('release_1 of data folder one; this folder is two'),
  })
  await expectOnly(1)
  expect(await publish(release(2), {folderId: 'two', isForced: true})).toMatchObject({outcome: 'published'})
  expect(await failureOf(publish(release(3)))).toMatchObject({code: 'PUBLISH_FOREIGN'})
})

test('readers who query all the while never see a gap, an empty table or half a release', async () => {
  await publish(release(1))
  let isOver = false
  const faults: unknown[] = []
  const seen = new Set<unknown>()
  async function read(ask: (client: Client) => Promise<void>): Promise<void> {
    const client = await server.connect(database)
    try {
      while (!isOver) await ask(client)
    } catch (error) {
      faults.push(error)
    }
    await client.end()
  }
  const joined = `select (select count(*) from core.deal)::int as rows, s.deals::int, s.nth::int,
    (select count(distinct nth) from core.deal)::int as kinds, (select min(nth)::int from core.deal) as least from mart.portfolio_summary s`
  const readers = [
    read(async (client) => {
      const {rows} = await client.query(joined)
      if (rows.length !== 1 || rows[0].rows === 0 || rows[0].kinds !== 1 || rows[0].least !== rows[0].nth)
        faults.push(rows)
      seen.add(rows[0]?.nth)
    }),
    // A prepared statement, whose plan the server keeps.
    read(async (client) => {
      const {rows} = await client.query({name: 'kept', text: 'select count(*)::int as rows from core.deal'})
      if (![2000, 500].includes(rows[0].rows)) faults.push(rows)
    }),
    // Several statements in one transaction.
    read(async (client) => {
      await client.query('begin isolation level repeatable read')
      const {rows: state} = await client.query('select release_id from loantape.release')
      const {rows: deals} = await client.query('select distinct nth::int from core.deal')
      const {rows: summary} = await client.query('select nth::int from mart.portfolio_summary')
      await client.query('commit')
      const parts = [state[0].release_id, `release_${deals[0]?.nth}`, `release_${summary[0]?.nth}`]
      if (new Set(parts).size !== 1 || deals.length !== 1) faults.push(parts)
    }),
  ]
  for (const nth of [4, 3, 1]) {
    await publish(release(nth))
    await until(() => seen.has(nth) || faults.length > 0)
  }
  isOver = true
  await Promise.all(readers)
  expect(faults).toEqual([])
})

test('a reader in a transaction finds the new rows, or keeps the release it has read, which the next publication drops', async () => {
  await publish(release(1))
  const [fresh, busy] = [await server.connect(database), await server.connect(database)]
  await fresh.query('begin isolation level repeatable read')
  await fresh.query('select 1')
  await busy.query('begin')
  await busy.query('select count(*) from core.deal')
  const pause = vi.fn(world.realClock.sleep)
  await publish(release(2), {lockMs: 20}, {realClock: {...world.realClock, sleep: pause}})
  // A statement that has begun with one table may end with the others of the same release.
  expect(pause).toHaveBeenCalled()
  const {rows} = await fresh.query('select count(*)::int as rows, min(nth)::int as nth from core.deal')
  expect(rows).toEqual([{rows: 2000, nth: 2}])
  expect((await schemas()).filter((name) => String(name).startsWith('loantape_old'))).toHaveLength(1)
  for (const client of [fresh, busy]) {
    await client.query('commit')
    await client.end()
  }
  expect(await publish(release(2))).toMatchObject({outcome: 'unchanged'})
  await expectOnly(2)
})

test('a reader that holds its release too long defers the publication, and nothing changes', async () => {
  await publish(release(1))
  const client = await holdRelease()
  const refusal = await failureOf(publish(release(2), {lockMs: 20}))
  await client.query('commit')
  await client.end()
  expect(refusal).toMatchObject({code: 'POSTGRES_BUSY', exitCode: 6})
  await expectOnly(1)
  expect(await publish(release(2))).toMatchObject({outcome: 'published'})
})

test('the reader role, also when named later, may read everything and change nothing', async () => {
  const [one, two] = [release(1), release(2)]
  await publish(one)
  await publish(two)
  expect(await publish(two, {reader: 'reader'})).toMatchObject({outcome: 'unchanged'})
  const reads = `select has_table_privilege('reader', 'mart.portfolio_summary', 'select') as reads`
  expect(await server.query(database, reads)).toEqual([{reads: true}])
  expect(await publish(one, {reader: 'reader'})).toMatchObject({outcome: 'published'})
  expect(await shown()).toEqual([1])
  const rights = await server.query(
    database,
    `select has_table_privilege('reader', 'core.deal', 'select') as reads,
       has_table_privilege('reader', 'loantape.release', 'select') as knows,
       has_schema_privilege('reader', 'mart', 'usage') as enters,
       has_table_privilege('reader', 'core.deal', 'insert, update, delete') as writes`,
  )
  expect(rights).toEqual([{reads: true, knows: true, enters: true, writes: false}])
})

test('foreign objects are never touched, and what others made of published tables or beside them is named', async () => {
  await server.query(database, 'create schema core; create table core.deal as select 7 as a')
  await server.query(database, 'create schema loantape; create table loantape.release as select 7 as a')
  const foreign = await failureOf(publish(release(1)))
  expect(foreign).toMatchObject({code: 'PUBLISH_FOREIGN', exitCode: 2})
  expect(foreign.message).toContain("Schema 'core', 'loantape'")
  expect(await server.query(database, 'select a from core.deal')).toEqual([{a: 7}])
  await server.query(database, 'drop schema core, loantape cascade')
  await publish(release(1))
  await server.query(
    database,
    `create schema own; create view own.big as select * from core.deal;
     create function own.many() returns bigint language sql begin atomic select count(*) from core.deal; end;
     create table own.later () inherits (core.deal); create table core.mine as select 42 as answer;
     create table core.noted as select 42 as answer; comment on table core.noted is 'as dbt does';
     alter table core.noted owner to reader;
     create table core.parted (answer int) partition by list (answer); comment on table core.parted is 'as dbt does';
     create view core.seven as select 7 as a; create type core.mood as enum ('calm')`,
  )
  const refusal = await failureOf(publish(release(2), {reader: 'reader'}))
  expect(refusal).toMatchObject({code: 'POSTGRES_DEPENDENT', exitCode: 2})
  expect(refusal.message).toContain(
    'function own.many(), table core.mine, table core.noted, table core.parted, table own.later, type core.mood, view core.seven, view own.big',
  )
  const reads = `select has_table_privilege('reader', 'core.mine', 'select') as reads`
  expect(await server.query(database, reads)).toEqual([{reads: false}])
  expect(await server.query(database, 'select distinct nth::int from own.big')).toEqual([{nth: 1}])
})

test('tables stay ours in a schema that was given to a role, and where a server gives each new table to one', async () => {
  await publish(release(1))
  await server.query(
    database,
    'alter schema core owner to reader; alter default privileges in schema core grant select on tables to reader',
  )
  await publish(release(2))
  await server.query(
    database,
    `create function give() returns event_trigger language plpgsql as $$ begin
       execute (
         select format('alter table %s owner to reader', object_identity)
         from pg_event_trigger_ddl_commands() where object_type = 'table'
       );
     end $$;
     create event trigger give on ddl_command_end when tag in ('CREATE TABLE') execute function give()`,
  )
  await publish(release(3))
  await publish(release(4))
  await expectOnly(4)
})

test('a view or table created during a publication is not dropped with the old release', async () => {
  await publish(release(1))
  const reader = await holdRelease()
  const sleep = async () => {
    await server.query(
      database,
      'create schema own; create view own.big as select * from core.deal; create table mart.mine as select 42 as answer',
    )
    await reader.query('commit')
  }
  const realClock = {...world.realClock, sleep}
  expect(await publish(release(2), {lockMs: 20}, {realClock})).toMatchObject({outcome: 'published'})
  await reader.end()
  expect(await server.query(database, 'select distinct nth::int from own.big')).toEqual([{nth: 1}])
  const refusal = await failureOf(publish(release(3)))
  const [, mine = ''] = /: table (loantape_old\w+\.mine), view own\.big\./.exec(refusal.message) ?? []
  expect(await server.query(database, `select answer from ${mine}`)).toEqual([{answer: 42}])
  await server.query(database, `drop schema own cascade; drop table ${mine}`)
  await publish(release(3))
  await expectOnly(3)
})

test('a publication asked to stop leaves the old release and nothing else', async () => {
  await publish(release(1))
  const reader = await holdRelease()
  const stopping = new AbortController()
  const sleep = async () => stopping.abort(new Error('stopped by SIGTERM'))
  const changes = {signal: stopping.signal, realClock: {...world.realClock, sleep}}
  const failure = await failureOf(publish(release(2), {lockMs: 20}, changes))
  await reader.end()
  expect(failure).toMatchObject({code: 'INTERRUPTED', exitCode: 6})
  // Also while it was connecting.
  const late = await failureOf(publish(release(2), {}, {signal: stopping.signal}))
  expect(late).toMatchObject({code: 'INTERRUPTED'})
  expect(await shown()).toEqual([1])
  expect(await publish(release(2))).toMatchObject({outcome: 'published'})
  await expectOnly(2)
})

const refusals: [string, () => Partial<PostgresRequest>, string, number][] = [
  ['a wrong password', () => ({url: server.urlOf(database, 'reader', 'wrong')}), 'PUBLISH_AUTH', 5],
  ['a server without TLS', () => ({url: `${server.urlOf(database)}?sslmode=verify-full`}), 'POSTGRES_TLS', 2],
  [
    'a missing certificate',
    () => ({url: `${server.urlOf(database)}?sslrootcert=/not/there.pem`}),
    'POSTGRES_TLS',
    2,
  ],
  ['an unknown user', () => ({url: server.urlOf(database, 'nobody')}), 'PUBLISH_AUTH', 5],
  ['an unknown database', () => ({url: server.urlOf('nowhere')}), 'POSTGRES_UNKNOWN_NAME', 2],
  ['an unknown reader', () => ({reader: 'no_such_role'}), 'POSTGRES_UNKNOWN_NAME', 2],
  ['a missing privilege', () => ({url: server.urlOf(database, 'reader')}), 'PUBLISH_PRIVILEGE', 2],
  [
    'a server that cannot be reached',
    () => ({url: 'postgres://u:secret@127.0.0.1:1/x'}),
    'PUBLISH_UNREACHABLE',
    6,
  ],
]

test('a refusing, busy or unreachable server is reported without the secret, and nothing is left behind', async () => {
  const other = await server.connect(database)
  await other.query(`select pg_advisory_lock(hashtext('loantape publish'))`)
  expect(await failureOf(publish(release(1)))).toMatchObject({code: 'PUBLISH_LOCKED', exitCode: 4})
  await other.end()
  for (const [what, request, code, exitCode] of refusals) {
    const refusal = await failureOf(publish(release(1), request()))
    expect(refusal, what).toMatchObject({code, exitCode})
    expect(refusal.message).not.toMatch(/secret|wrong/)
    expect(refusal.message).toContain('Readers still see the previously published release')
    expect(await schemas()).toEqual([])
  }
})

test('a server that has no connection left is reported with its words, and a publication may pause longer than it allows', async () => {
  await server.query(
    'postgres',
    `create role crowded login connection limit 0 password 'secret of the tests'`,
  )
  const refusal = await failureOf(publish(release(1), {url: server.urlOf(database, 'crowded')}))
  expect(refusal).toMatchObject({code: 'PUBLISH_UNREACHABLE', exitCode: 6})
  expect(refusal.message).toContain('too many connections')
  for (const limit of ['idle_in_transaction_session', 'idle_session', 'statement', 'transaction'])
    await server.query('postgres', `alter database ${database} set ${limit}_timeout = '1h'`)
  await letReact('release', {
    trigger: 'trigger reacted before insert',
    body: `if exists (select from pg_settings where setting = '3600000') then raise 'limited'; end if; return new;`,
  })
  expect(await publish(release(1))).toMatchObject({outcome: 'published'})
})

test('a connection killed while the last table is copied, or in the middle of the swap, leaves the old release and nothing else', async () => {
  await publish(release(1))
  for (const [command, what] of [
    ['CREATE TABLE', 'portfolio_summary'],
    ['ALTER SCHEMA', ''],
  ]) {
    await server.query(
      database,
      `create function public.die() returns event_trigger language plpgsql as $$ begin
         if exists (select from pg_event_trigger_ddl_commands() where object_identity like '%${what}')
         then perform pg_terminate_backend(pg_backend_pid()); end if;
       end $$;
       create event trigger die on ddl_command_end when tag in ('${command}') execute function public.die()`,
    )
    expect(await failureOf(publish(release(2)))).toMatchObject({code: 'PUBLISH_UNREACHABLE', exitCode: 6})
    await server.query(database, 'drop event trigger die; drop function public.die')
    await expectOnly(1)
  }
  // At the commit itself nobody knows whether the server did it.
  await letReact('release', {
    trigger: 'constraint trigger reacted after insert',
    timing: 'deferrable initially deferred',
    body: 'perform pg_terminate_backend(pg_backend_pid()); return null;',
  })
  const unsure = await failureOf(publish(release(2)))
  expect(unsure).toMatchObject({code: 'PUBLISH_UNSURE'})
  expect(unsure.message).toContain('terminating connection due to administrator command')
  await server.query(database, 'drop event trigger react; drop function public.react, public.reacted')
  await expectOnly(1)
  expect(await publish(release(2))).toMatchObject({outcome: 'published'})
})
