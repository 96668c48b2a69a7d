import type {Seed} from '../types.ts'
import {type Account, type AccountMapping, listEndings, type MappingVersion} from './mapping.ts'

const COLUMNS = [
  'account',
  'since',
  'role',
  'loan_program',
  'term',
  'account_code',
  'account_name',
  'moves_balances',
]

/**
 * `seed.account`: the accounts of every mapping, by the period from which it holds. It takes the place of
 * `sql/seeds/account.csv`, which is the default mapping.
 */
export function createAccountSeed(versions: readonly MappingVersion[]): Seed {
  const rows = versions.flatMap(({since, mapping, movesBalances}) =>
    listRoles(mapping).map(({role, program = null, term = null, account}) => {
      const key = `${since} ${role} ${program ?? term ?? ''}`.trim()
      return [
        key,
        since,
        role,
        program,
        term,
        account?.code ?? null,
        account?.name ?? null,
        `${movesBalances}`,
      ]
    }),
  )
  return {
    name: 'account',
    file: 'accounting.json',
    text: JSON.stringify(rows),
    types: {moves_balances: 'boolean'},
    columns: COLUMNS,
    isComputed: true,
    rows: rows.map((values) => ({values, line: 1, text: ''})),
  }
}

/** The part that an account plays: of one program, or of one term of the roll-forward, where it is not of all. */
interface Role {
  role: string
  program?: string
  term?: string
  /** Null where another system books it. */
  account: Account | null
}

function listRoles(mapping: AccountMapping): Role[] {
  const {receivable, clearing, opening = clearing} = mapping
  return [
    ...Object.entries(receivable).map(([program, account]) => ({role: 'receivable', program, account})),
    {role: 'clearing', account: clearing},
    {role: 'opening', account: opening},
    ...listEndings(mapping).map(({ending, account}) => ({
      role: account ? 'ended' : 'elsewhere',
      term: ending === 'other' ? 'ended_other' : ending,
      account,
    })),
  ]
}
