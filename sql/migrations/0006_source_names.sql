-- An address may carry a key in its query or a password before its host: sources are stored by what names them.
update raw.walk
set base_url = regexp_replace(regexp_replace(base_url, '/*([?#].*)?$', ''), '^(\w+://)[^/]*@', '\1');

update raw.setting
set value = regexp_replace(regexp_replace(value, '/*([?#].*)?$', ''), '^(\w+://)[^/]*@', '\1')
where name = 'source_base_url';
