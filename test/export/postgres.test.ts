import type {Client} from 'pg'
import {beforeEach, expect, test, vi} from 'vitest'
import type {World} from '../../src/core/types.ts'
import {openPostgres, type PostgresRequest} from '../../src/export/postgres.ts'
import {publishTo} from '../../src/export/publish.ts'
import type {Release} from '../../src/store/release.ts'
import {createFolder, createWorldAt} from '../support/data.ts'
import {createPostgres} from '../support/postgres.ts'
import {publishNth, publishTables, publishTypes, TYPES} from '../support/releases.ts'
import {expectFailure, useShared} from '../support/set-up.ts'
import {until} from '../support/until.ts'

let database: string
const data = await useShared(createFolder())
const releases = await Array.fromAsync([2000, 2000, 2000, 500], (deals, index) =>
  publishNth(data.folder, index + 1, {deals}),
)
/** Returns the nth release; the fourth has fewer rows. */
const release = (nth: number) => releases[nth - 1]!
const server = await useShared(createPostgres())
await server.query('postgres', `create role reader login password 'secret of the tests'`)

beforeEach(async ({task}) => {
  database = `db_${task.id.replace(/\W/g, '')}`
  await server.query('postgres', `create database ${database}`)
})

const frozen = createWorldAt('2026-02-02T12:00:00Z')

/** A world in which a pause is what `sleep` does. */
const pausing = (sleep: () => Promise<void>, changes: Partial<World> = {}): World => ({
  ...frozen,
  ...changes,
  realClock: {...frozen.realClock, sleep},
})

interface Force {
  isForced: boolean
  folderId: string
}

async function publish(
  from: Release,
  {isForced = false, folderId = 'one', ...request}: Partial<PostgresRequest & Force> = {},
  world = pausing(() => Promise.resolve()),
) {
  await using target = await openPostgres({url: server.urlOf(database), ...request}, world)
  return await publishTo(target, from, {command: 'loantape publish postgres', isForced, folderId}, world)
}

const query = (sql: string) => server.query(database, sql)

/** Returns the numbers of the releases whose deals readers see. */
const shown = async () => (await query('select distinct nth::int from core.deal')).map(({nth}) => nth)

const schemas = async () => {
  const own = `nspname !~ '^pg_' and nspname not in ('public', 'information_schema')`
  const found = await query(`select nspname from pg_namespace where ${own} order by 1`)
  return found.map(({nspname}) => String(nspname))
}

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

let made = 0

/** Publishes a release whose only table, by default core.deal, is made by this SELECT. */
async function publishSelect(
  select: string,
  {table = 'core.deal', ...request}: {table?: string; isForced?: boolean} = {},
) {
  const [schema] = table.split('.')
  const sql = `create schema release.${schema}; create table release.${table} as ${select}`
  return await publish(await publishTables(data.folder, {release_id: `own_${++made}`, sql}), request)
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
  const rows = await query(
    `select text, money::text, widest::text, finest::text, "count of it"::text as count, ratio, day::text, (instant at time zone 'UTC')::text as instant, truth, null_word
     from kinds.row order by money desc`,
  )
  expect(rows).toEqual(TYPES)
  const types = `string_agg(format_type(atttypid, atttypmod), ', ' order by attnum)`
  const [described] = await query(
    `select ${types} as types, obj_description(attrelid) as about, max(col_description(attrelid, 2)) as money,
       (select reltuples from pg_class where oid = attrelid) as planned
     from pg_attribute where attrelid = 'kinds.row'::regclass and attnum > 0 group by attrelid`,
  )
  expect(described).toEqual({
    types:
      'text, numeric(18,2), numeric(38,2), numeric(38,38), bigint, double precision, date, timestamp with time zone, boolean, text',
    about: "What\\s's there.",
    money: "USD, 'exact'",
    planned: 2,
  })
})

test('names that PostgreSQL cannot have, or would cut to the same one, are refused; a long one is published', async () => {
  const long = 'a'.repeat(63)
  const two = `select 1 as ${long}1, 1 as ${long}2`
  await expectFailure(
    publishSelect(two),
    'POSTGRES_NAMES',
    `'core.deal.${long}1' and 'core.deal.${long}2' would`,
  )
  const same = publishSelect(`select 1 as a; create table release.core.${long}2 as select 1 as a`, {
    table: `core.${long}1`,
  })
  await expectFailure(same, 'POSTGRES_NAMES', `'core.${long}1' and 'core.${long}2' would`)
  expect(await schemas()).toEqual([])
  for (const isForced of [false, true]) {
    await publishSelect(`select 1 as ${long}1`, {table: `${long}1.deal`, isForced})
    expect(await schemas()).toEqual([long, 'loantape'])
  }
  const odd = publishSelect('select 1 as xmin', {isForced: true})
  await expectFailure(odd, 'PUBLISH_FAILED', /, table 'core\.deal', refused: .* "xmin" conflicts/)
})

/** Lets the server run `body` for each row of a table that a later publication makes. */
async function letReact(
  table: string,
  {trigger, timing = '', body}: {trigger: string; timing?: string; body: string},
): Promise<void> {
  await query(
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
    const refused = publishSelect(`select 'private' as a, ${value} as note`)
    const words = /^(?!.*(private|5881580)).*Table 'core\.deal', column 'note',/
    await expectFailure(refused, 'POSTGRES_VALUE', words)
  }
  await letReact('deal', {
    trigger: 'trigger reacted before insert',
    body: 'if new.nth = 500 then new.loan_amount := new.loan_amount - 0.01; end if; return new;',
  })
  const large = publishSelect(
    'select i as nth, 9999999999999999.99::decimal(18,2) as loan_amount from range(1000) t(i)',
  )
  await expectFailure(large, 'PUBLISH_INCOMPLETE', "Table 'core.deal'")
  expect(await schemas()).toEqual([])
})

test('a release whose tables have not the rows of its manifest is not published', async () => {
  const whole = release(1)
  const tables = whole.manifest.tables.map((table) => ({...table, rows: table.rows + 1}))
  const asked = publish({...whole, manifest: {...whole.manifest, tables}})
  await expectFailure(asked, 'PUBLISH_INCOMPLETE', /^Table '[\w.]+' has \d+ rows: its manifest says \d+\./)
  expect(await schemas()).toEqual([])
})

test('a release published already is unchanged, an older one must be forced, and nothing is left over, not even a schema', async () => {
  const one = release(1)
  // The days that readers see are compared as text.
  await server.query('postgres', `alter database ${database} set datestyle = 'German'`)
  await publish(one)
  await query('drop schema mart cascade')
  expect(await publish(one)).toMatchObject({outcome: 'unchanged', release_id: 'release_1'})
  expect(await publish(one, {isForced: true})).toMatchObject({outcome: 'published', loaded: 2})
  await expectOnly(1)
  const older = await publishTables(data.folder, {release_id: 'older', as_of: '2026-02-01'})
  const known_at = '2026-02-02T23:29:59.999999Z'
  for (const refused of [older, await publishTables(data.folder, {release_id: 'less known', known_at})])
    await expectFailure(publish(refused), 'PUBLISH_OLDER', `--release ${refused.manifest.release_id} --force`)
  expect(await shown()).toEqual([1])
  expect(await publish(older, {isForced: true})).toMatchObject({outcome: 'published'})
  expect(await publish(release(2))).toMatchObject({outcome: 'published', rows: 2001})
  expect(await query('select release_id, as_of::text from loantape.release')).toEqual([
    {release_id: 'release_2', as_of: '02.02.2026'},
  ])
  await expectOnly(2)
  await publishSelect('select 1 as a')
  expect(await schemas()).toEqual(['core', 'loantape'])
})

test('the release of another data folder is replaced by force alone', async () => {
  await publish(release(1))
  const words = 'release_1 of data folder one; this folder is two'
  await expectFailure(publish(release(2), {folderId: 'two'}), 'PUBLISH_FOREIGN', words)
  await expectOnly(1)
  expect(await publish(release(2), {folderId: 'two', isForced: true})).toMatchObject({outcome: 'published'})
  await expectFailure(publish(release(3)), 'PUBLISH_FOREIGN')
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
  const joined = `select nth::int, (select array_agg(distinct nth)::int[] from core.deal) as deals from mart.portfolio_summary`
  const readers = [
    read(async (client) => {
      const {rows} = await client.query(joined)
      if (rows.length !== 1 || String(rows[0].deals) !== String(rows[0].nth)) faults.push(rows)
      seen.add(rows[0]?.nth)
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
  const pause = vi.fn(() => Promise.resolve())
  await publish(release(2), {lockMs: 20}, pausing(pause))
  // A statement that has begun with one table may end with the others of the same release.
  expect(pause).toHaveBeenCalled()
  const {rows} = await fresh.query('select distinct nth::int from core.deal')
  expect(rows).toEqual([{nth: 2}])
  expect(await schemas()).toContainEqual(expect.stringMatching(/^loantape_old/))
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
  await expectFailure(publish(release(2), {lockMs: 20}), 'POSTGRES_BUSY')
  await client.end()
  await expectOnly(1)
  expect(await publish(release(2))).toMatchObject({outcome: 'published'})
})

test('the reader role, also when named later, may read everything and change nothing', async () => {
  const [one, two] = [release(1), release(2)]
  await publish(one)
  await publish(two)
  expect(await publish(two, {reader: 'reader'})).toMatchObject({outcome: 'unchanged'})
  const reads = `select has_table_privilege('reader', 'mart.portfolio_summary', 'select') as reads`
  expect(await query(reads)).toEqual([{reads: true}])
  expect(await publish(one, {reader: 'reader'})).toMatchObject({outcome: 'published'})
  expect(await shown()).toEqual([1])
  const [rights] = await query(
    `select has_table_privilege('reader', 'core.deal', 'select') as reads,
       has_table_privilege('reader', 'loantape.release', 'select') as knows,
       has_schema_privilege('reader', 'mart', 'usage') as enters,
       has_table_privilege('reader', 'core.deal', 'insert, update, delete') as writes`,
  )
  expect(rights).toEqual({reads: true, knows: true, enters: true, writes: false})
})

test('foreign objects are never touched, and what others made of published tables or beside them is named', async () => {
  await query('create schema core; create table core.deal as select 7 as a')
  await query('create schema loantape; create table loantape.release as select 7 as a')
  await expectFailure(publish(release(1)), 'PUBLISH_FOREIGN', "Schema 'core', 'loantape'")
  expect(await query('select a from core.deal')).toEqual([{a: 7}])
  await query('drop schema core, loantape cascade')
  await publish(release(1))
  await query(
    `create schema own; create view own.big as select * from core.deal;
     create function own.many() returns bigint language sql begin atomic select count(*) from core.deal; end;
     create table own.later () inherits (core.deal); create table core.mine as select 42 as answer;
     create table core.noted as select 42 as answer; comment on table core.noted is 'as dbt does';
     alter table core.noted owner to reader;
     create table core.parted (answer int) partition by list (answer); comment on table core.parted is 'as dbt does';
     create view core.seven as select 7 as a; create type core.mood as enum ('calm')`,
  )
  const named =
    'function own.many(), table core.mine, table core.noted, table core.parted, table own.later, type core.mood, view core.seven, view own.big'
  await expectFailure(publish(release(2), {reader: 'reader'}), 'POSTGRES_DEPENDENT', named)
  const reads = `select has_table_privilege('reader', 'core.mine', 'select') as reads`
  expect(await query(reads)).toEqual([{reads: false}])
  expect(await query('select distinct nth::int from own.big')).toEqual([{nth: 1}])
})

test('tables stay ours in a schema that was given to a role, and where a server gives each new table to one', async () => {
  await publish(release(1))
  await query(
    'alter schema core owner to reader; alter default privileges in schema core grant select on tables to reader',
  )
  await publish(release(2))
  await query(
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
  expect(await publish(release(2), {lockMs: 20}, pausing(sleep))).toMatchObject({outcome: 'published'})
  await reader.end()
  expect(await query('select distinct nth::int from own.big')).toEqual([{nth: 1}])
  const words = /: table (loantape_old\w+\.mine), view own\.big\./
  const [, mine = ''] = words.exec(await expectFailure(publish(release(3)), 'POSTGRES_DEPENDENT')) ?? []
  expect(await query(`select answer from ${mine}`)).toEqual([{answer: 42}])
  await query(`drop schema own cascade; drop table ${mine}`)
  await publish(release(3))
  await expectOnly(3)
})

test('a publication asked to stop leaves the old release and nothing else', async () => {
  await publish(release(1))
  const reader = await holdRelease()
  const stopping = new AbortController()
  const {signal} = stopping
  const stopped = pausing(async () => stopping.abort(new Error('stopped by SIGTERM')), {signal})
  await expectFailure(publish(release(2), {lockMs: 20}, stopped), 'INTERRUPTED')
  await reader.end()
  // Also while it was connecting.
  await expectFailure(publish(release(2), {}, stopped), 'INTERRUPTED')
  expect(await shown()).toEqual([1])
  expect(await publish(release(2))).toMatchObject({outcome: 'published'})
  await expectOnly(2)
})

test('a refusing, busy or unreachable server is reported without the secret, and nothing is left behind', async () => {
  const other = await server.connect(database)
  await other.query(`select pg_advisory_lock(hashtext('loantape publish'))`)
  await expectFailure(publish(release(1)), 'PUBLISH_LOCKED')
  await other.end()
  await query(`create role crowded login connection limit 0 password 'secret of the tests'`)
  const withPath = (path: string) => ({url: server.urlOf(database) + path})
  const refusals: [request: Partial<PostgresRequest>, code: string, words?: string][] = [
    [{url: server.urlOf(database, 'reader', 'wrong')}, 'PUBLISH_AUTH'],
    [{url: server.urlOf(database, 'nobody')}, 'PUBLISH_AUTH'],
    [withPath('?sslmode=verify-full'), 'POSTGRES_TLS'],
    [withPath('?sslrootcert=/not/there.pem'), 'POSTGRES_TLS'],
    [{url: server.urlOf('nowhere')}, 'POSTGRES_UNKNOWN_NAME'],
    [{reader: 'no_such_role'}, 'POSTGRES_UNKNOWN_NAME'],
    [{url: server.urlOf(database, 'reader')}, 'PUBLISH_PRIVILEGE'],
    [{url: 'postgres://u:secret@127.0.0.1:1/x'}, 'PUBLISH_UNREACHABLE'],
    [{url: server.urlOf(database, 'crowded')}, 'PUBLISH_UNREACHABLE', 'too many connections'],
  ]
  for (const [request, code, words] of refusals) {
    const message = await expectFailure(publish(release(1), request), code, words)
    expect(message).not.toMatch(/secret|wrong/)
    expect(message).toContain('Readers still see the previously published release')
    expect(await schemas()).toEqual([])
  }
})

test('a publication may pause longer than a server allows', async () => {
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
    await expectFailure(publish(release(2)), 'PUBLISH_UNREACHABLE')
    await query('drop event trigger die; drop function public.die')
    await expectOnly(1)
  }
  // At the commit itself nobody knows whether the server did it.
  await letReact('release', {
    trigger: 'constraint trigger reacted after insert',
    timing: 'deferrable initially deferred',
    body: 'perform pg_terminate_backend(pg_backend_pid()); return null;',
  })
  const words = 'terminating connection due to administrator command'
  await expectFailure(publish(release(2)), 'PUBLISH_UNSURE', words)
  await query('drop event trigger react; drop function public.react, public.reacted')
  await expectOnly(1)
  expect(await publish(release(2))).toMatchObject({outcome: 'published'})
})
