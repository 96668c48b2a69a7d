-- Values in words, for questions: `usd(1234.5)` is `$1,234.50`, exactly; `counted(2, 'deal')` is `2 deals`, `pct(61.4)` is `61.4 %`;
-- `signed` is a movement, `brief` a text as lists show it, `words` a name of the data, `words_of_age` an age band;
-- `mentions(text, part)` in whatever case; `change_since(figure, before, day)` is `+$1,234.56 (+0.8 %)`, of a DOUBLE,
-- which is a ratio, points of a percent, of what is no DECIMAL a number.
create temp macro usd(amount) as case
  when amount is null then '–'
  else if(amount < 0, '−$', '$') || format('{:,}', trunc(abs(cast(amount as decimal(38, 2))))::hugeint)
    || '.' || right(cast(cast(amount as decimal(38, 2)) as varchar), 2)
end;
create temp macro signed(amount) as if(amount = 0, '–', if(amount > 0, '+', '') || usd(amount));
create temp macro counted(number, thing) as format('{:,} {}{}', number, thing, if(number = 1, '', 's'));
create temp macro pct(number) as coalesce(format('{:.1f} %', number), '–');
create temp macro brief(text) as case
  when trim(text) = '' then '(blank)'
  when length(text) > 80 then left(text, 79) || '…'
  else coalesce(text, '–')
end;
create temp macro words(text) as brief(replace(text, '_', ' '));
create temp macro words_of_age(band) as if(
  band = 'unknown (≥ 0)', 'not known', regexp_replace(band, 'unknown \(≥ (\d+)\)', 'at least \1')
);
-- Browsers remove `.` and `..` from a path, even encoded; a leading `~` keeps them.
create temp macro deal_address(id) as '/deals/' || url_encode(regexp_replace(id, '^(~|\.{1,2}$)', '~\1'));
-- Where a term of the roll-forward stands: the opening, what adds to it, from 2 to 6, what takes away, the closing.
create temp macro place_of_term(term) as list_position([
  'opening', 'found', 'originated', 'refunded', 'restored', 'increased', 'decreased', 'reversed', 'vanished',
  'paid_off', 'sold', 'refinanced', 'foreclosed', 'charged_off', 'ended_other', 'closing'
], term);
-- `so far` for the running month, which is that of the next day, too; null for others.
create temp macro so_far(month) as if(
  month = strftime(cast(getvariable('as_of') as date) + 1, '%Y-%m'), 'so far', null
);
-- The dimension by which months are shown: the one asked for, if there are months of it.
create temp macro monthly_by(asked) as if(
  asked in ('state', 'status', 'size_band', 'ltv_band', 'created_month'), asked, 'loan_program'
);
create temp macro one_of(value, names) as if(
  coalesce(list_contains(names, value), true), value, error('''' || value || ''': expected one of ' || array_to_string(names, ', '))
);
create temp macro mentions(text, part) as contains(lower(text), lower(trim(coalesce(part, ''))));
create temp macro change_since(figure, before, day) as case
  when day is null or figure is null then null
  when before is null then 'nothing known of ' || day
  when round(figure - before, 4) = 0 then e'unchanged\nsince ' || day
  else concat(
    if(figure > before, '+', '−'),
    case
      when typeof(figure) = 'DOUBLE' then format('{:.2f} points', 100 * abs(cast(figure - before as double)))
      when typeof(figure) like 'DECIMAL%' then usd(abs(figure - before))
      else format('{:,}', cast(abs(figure - before) as hugeint))
    end,
    if(
      typeof(figure) <> 'DOUBLE' and abs(cast(figure - before as double) / nullif(before, 0)) >= 0.0005,
      if(figure > before, ' (+', ' (−') || format('{:.1f}', 100 * abs(cast(figure - before as double) / before))
        || chr(160) || '%)',
      ''
    ),
    e'\nsince ',
    day
  )
end;
