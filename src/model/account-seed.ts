import type {Account, MappingVersion} from '../contract/mapping.ts'
import type {Seed} from '../types.ts'
import {quoteLiteral} from '../warehouse/database.ts'

const COLUMNS = ['account', 'since', 'role', 'loan_program', 'account_code', 'account_name', 'moves_balances']

/**
 * `seed.account`: the accounts of every mapping, by the period from which it holds. It takes the place of
 * `sql/seeds/account.csv`, which is the default mapping.
 */
export function createAccountSeed(versions: readonly MappingVersion[]): Seed {
  const rows = versions.flatMap(listRows)
  const values = rows.map(
    (row) => `(${row.map((value) => (value === null ? 'null::varchar' : quoteLiteral(value))).join(', ')})`,
  )
  return {
    name: 'account',
    file: 'accounting.json',
    text: JSON.stringify(rows),
    types: {moves_balances: 'boolean'},
    rowsSql: `(values ${values.join(', ')}) as account(${COLUMNS.join(', ')})`,
  }
}

function listRows({since, mapping, movesBalances}: MappingVersion): (string | null)[][] {
  const {receivable, clearing, ended, opening} = mapping
  const roles: [role: string, program: string | null, account: Account | undefined][] = [
    ...Object.entries(receivable).map(([program, account]): [string, string, Account] => [
      'receivable',
      program,
      account,
    ]),
    ['clearing', null, clearing],
    ['opening', null, opening ?? clearing],
    ['ended', null, ended],
  ]
  return roles.flatMap(([role, program, account]) =>
    account
      ? [
          [
            `${since} ${role} ${program ?? ''}`.trim(),
            since,
            role,
            program,
            account.code,
            account.name,
            `${movesBalances}`,
          ],
        ]
      : [],
  )
}
