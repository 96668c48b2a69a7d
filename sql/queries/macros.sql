-- Values in words, for questions: `usd(1234.5)` is `$1,234.50`, exactly; `counted(2, 'deal')` is `2 deals`, `pct(61.4)` is `61.4 %`;
-- `signed` is a movement, `brief` a text as lists show it, `words` a name of the data; `mentions(text, part)` in whatever case.
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
create temp macro mentions(text, part) as contains(lower(text), lower(trim(coalesce(part, ''))));
