import type {Seed} from '../types.ts'
import type {AccountMapping, MappingVersion} from './mapping.ts'

const COLUMNS = ['account', 'since', 'role', 'loan_program', 'account_code', 'account_name', 'moves_balances']

/**
 * `seed.account`: the accounts of every mapping, by the period from which it holds. It takes the place of
 * `sql/seeds/account.csv`, which is the default mapping.
 */
export function createAccountSeed(versions: readonly MappingVersion[]): Seed {
  const rows = versions.flatMap(({since, mapping, movesBalances}) =>
    listRoles(mapping).map(({role, program, account: {code, name}}) => {
      const key = `${since} ${role} ${program ?? ''}`.trim()
      return [key, since, role, program, code, name, `${movesBalances}`]
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

function listRoles({receivable, clearing, ended, opening = clearing}: AccountMapping) {
  return [
    ...Object.entries(receivable).map(([program, account]) => ({role: 'receivable', program, account})),
    {role: 'clearing', program: null, account: clearing},
    {role: 'opening', program: null, account: opening},
    ...(ended ? [{role: 'ended', program: null, account: ended}] : []),
  ]
}
